"""The figures of a sweep: stored in a file while it runs, as a table, as CSV."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from mmengine.config import Config
from mmengine.dist import is_main_process

from ..utils.atomic_write import atomic_write_text
from ..utils.sizes import ImageSize
from ..version import __version__
from .settings import SweepPoint

HEADLINES = ('coco/bbox_mAP', 'mIoU', 'accuracy/top1')  # what is plotted unless asked otherwise
DESCRIPTION = ('size', 'height', 'width', 'scaling', 'window', 'slide')
MEASURED_BY = ('model', 'test_dataloader', 'test_evaluator', 'test_cfg', 'custom_hooks')
COLUMNS = 6  # metrics in the table; the files have all
WIDTHS = dict(size=11, scaling=17, window=9)  # of what is before them


@dataclass(frozen=True)
class Identity:
    """What figures belong to: another model, data set or package measures something else.

    Data is known by its path and settings, not by its content.
    """

    config: str
    config_sha256: str
    checkpoint: str
    checkpoint_sha256: str
    package_version: str = __version__

    @classmethod
    def of(cls, config: Config, config_name: str, checkpoint: str) -> Identity:
        """Of a config after all overrides; a checkpoint that is no file is known by its name."""
        settings = {name: config.get(name) for name in MEASURED_BY}
        text = json.dumps(settings, sort_keys=True, default=str)
        hashes = hashlib.sha256(text.encode()).hexdigest(), hash_of(checkpoint)
        return cls(config_name, hashes[0], checkpoint, hashes[1])

    def differences(self, other: dict) -> list[str]:
        """Which parts of another identity differ; names of files do not count."""
        names = dict(
            config_sha256='config (with its options and data folders)',
            checkpoint_sha256='checkpoint',
            package_version='version of rope_dense',
        )
        return [words for name, words in names.items() if other.get(name) != getattr(self, name)]


@dataclass
class Results:
    """The finished points of one model, in a JSON file that is replaced after each of them.

    Attributes:
        path: of the file; a CSV file of the same stem stands beside it.
        identity: of the model and data.
        label: name of the model in plots.
        training_size: (height, width) that the model was trained at, or (side, side).
        purposes: what each scaling is for, in words.
        rows: one for each finished point.
    """

    path: Path
    identity: Identity
    label: str
    training_size: ImageSize
    purposes: dict[str, str]
    rows: list[dict] = field(default_factory=list)

    def resume(self) -> None:
        """Take over what the file has, if there is one.

        Raises:
            ValueError: the file is not one of these, or belongs to another identity.
        """
        if not self.path.exists():
            return
        stored = read_results(self.path)
        if differences := self.identity.differences(stored['identity']):
            raise ValueError(
                f'{self.path} has figures of another {" and another ".join(differences)} '
                f'({stored["identity"]["config"]}, {stored["identity"]["checkpoint"]}): give '
                'another --work-dir, or --overwrite to start anew'
            )
        self.rows = stored['rows']
        self.purposes = stored.get('scalings', {}) | self.purposes

    def find(self, point: SweepPoint) -> dict | None:
        """The row of a point, None if it is not finished."""
        setting = asdict(point)
        return next((row for row in self.rows if setting.items() <= row.items()), None)

    def add(
        self, point: SweepPoint, size: ImageSize, metrics: dict[str, float], seconds: float
    ) -> dict:
        """Store the metrics of a point, and the seconds per image; returns its row."""
        row = dict(
            asdict(point),
            height=size[0],
            width=size[1],
            metrics={name: number_or_none(value) for name, value in metrics.items()},
            seconds_per_image=seconds,
        )
        self.rows.append(row)
        self.write()
        return row

    def write(self) -> None:
        """Write both files, by the first process; each is replaced in one step."""
        if is_main_process():
            atomic_write_text(self.path, json.dumps(self.content(), indent=1) + '\n')
            atomic_write_text(self.path.with_suffix('.csv'), as_csv([self.content()]))

    def content(self) -> dict:
        return dict(
            label=self.label,
            training_size=self.training_size,
            scalings=self.purposes,
            identity=asdict(self.identity),
            rows=self.rows,
        )


def hash_of(checkpoint: str) -> str:
    """Of its content, or of its name if it is no file."""
    path = os.path.expanduser(checkpoint)
    if not os.path.isfile(path):
        return hashlib.sha256(checkpoint.encode()).hexdigest()
    digest = hashlib.sha256()
    with open(path, 'rb') as file:
        while chunk := file.read(2**22):
            digest.update(chunk)
    return digest.hexdigest()


def number_or_none(value: float) -> float | None:
    """COCO gives -1, and others NaN, where a metric is not defined."""
    value = round(float(value), 6)  # mmseg's are float32
    return None if math.isnan(value) or value == -1 else value


def read_results(path: Path) -> dict:
    """The content of a results file.

    Raises:
        ValueError: there is none at the path.
    """
    try:
        content = json.loads(path.read_text(encoding='utf-8'))
        rows = content['rows']
        if not all(isinstance(row['metrics'], dict) for row in rows):
            raise TypeError('a row without metrics')
        return dict(content, identity=dict(content['identity']), label=str(content['label']))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f'{path} is no results file of a sweep ({error!r})') from error


def as_csv(runs: Sequence[dict]) -> str:
    """A line for each row of results, with the metrics of all."""
    return csv_text(
        dict(label=run['label'])
        | {name: row[name] for name in DESCRIPTION}
        | row['metrics']
        | dict(seconds_per_image=row.get('seconds_per_image'))
        for run in runs
        for row in run['rows']
    )


def csv_text(lines: Iterable[dict]) -> str:
    """CSV with a column for each name; what a line does not have is empty."""
    lines = list(lines)
    file = io.StringIO()
    writer = csv.DictWriter(file, dict.fromkeys(n for x in lines for n in x), lineterminator='\n')
    writer.writeheader()
    writer.writerows(lines)
    return file.getvalue()


def headline(names: Iterable[str]) -> str:
    """The metric that stands for a task: of those known the first, else the first at all."""
    names = list(names)
    return next((name for name in HEADLINES if name in names), names[0])


def table_header(row: dict) -> str:
    names = [name.rpartition('/')[2].removeprefix('bbox_') for name in shown(row)]
    return table_cells(WIDTHS, [*names, 's/image'])


def table_line(row: dict, *, is_stored: bool) -> str:
    values = [row['metrics'][name] for name in shown(row)] + [row['seconds_per_image']]
    figures = ['-' if value is None else f'{value:.3f}' for value in values]
    return table_cells([row[name] for name in WIDTHS], figures) + ' (reused)' * is_stored


def shown(row: dict) -> list[str]:
    """The metrics of a row that the table has room for, the headline first."""
    return list(dict.fromkeys([headline(row['metrics']), *row['metrics']]))[:COLUMNS]


def table_cells(described: Iterable[str], figures: Sequence[str]) -> str:
    left = (f'{text:<{width}}' for text, width in zip(described, WIDTHS.values(), strict=True))
    return ''.join([*left, *(f'{figure:>9}' for figure in figures)])
