"""Rows of an ``Evaluator``: in a file that grows with each test, as a table, and as CSV."""

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np
from mmengine.config import Config
from mmengine.dist import is_main_process

from ..engine.figure_source import FigureSource
from ..project.identity import Identity
from ..utils.results import Results as WrittenResults
from ..utils.sizes import ImageSize
from .settings import Setting

SETTINGS = ('scaling', 'window', 'slide', 'tile')  # beside the size
# The metrics that are plotted by default; masks where there are any, as the best checkpoint.
HEADLINES = 'coco/segm_mAP coco/bbox_mAP dota/mAP mIoU accuracy/top1 rmse'.split()
FORMULA = ('=', '+', '-', '@', '\t', '\r')  # what it begins with
COLUMNS = 6  # metrics in the table; the files have all
WIDTHS = dict(
    size=11,
    scaling=18,
    window=9,
    tile=7,
)  # of the columns before them


class ResultRow(TypedDict, total=False):
    """The figures of a test with a setting, see ``Evaluator.evaluate``."""

    size: str
    scaling: str
    window: str
    slide: str
    tile: int | None
    given: str | None
    height: int
    width: int
    metrics: dict[str, float | None]
    seconds_per_image: float | None
    # The fields of a ``FigureSource``; not of an earlier version.
    source: dict[str, Any]


class ResultFile(TypedDict):
    """The content of a results file; of a paper it has no identity."""

    label: str
    training_size: ImageSize
    identity: NotRequired[dict]
    rows: list[ResultRow]


@dataclass
class Results:
    """The rows of one model, in a JSON file that is replaced after each test.

    Attributes:
        path: of the file; a CSV file of the same stem is written beside it.
        identity: of the model and data.
        label: name of the model in plots.
        training_size: (height, width) that the model was trained at, or (side, side).
        rows: see ``Evaluator.evaluate``.
        files: the JSON and the CSV file, and the plot.
        written: what writes them.
    """

    path: Path
    identity: Identity
    label: str
    training_size: ImageSize
    rows: list[ResultRow] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Raise ForeignFileError if a file of the user's would be replaced."""
        self.files = [
            self.path.with_suffix(suffix) for suffix in ('.json', '.csv', '.png')
        ]
        self.written = WrittenResults(self.path.parent, self.path.name)
        self.written.check(self.files)

    def resume(self) -> None:
        """Take the file's rows, if it exists; ValueError for no results or another identity."""
        if not self.path.exists():
            return
        stored = read_results(self.path)
        identity = stored['identity']
        differences = self.identity.differences(identity)
        if differences:
            raise ValueError(
                f'{self.path} has figures of another {" and another ".join(differences)} '
                f'({identity["config"]}, {identity["checkpoint"]}): give '
                'another --work-dir, or --overwrite to start anew'
            )
        self.rows = stored['rows']

    def find(self, setting: Setting) -> ResultRow | None:
        """The row of a setting, None if it was not tested."""
        fields = asdict(setting).items()
        for row in self.rows:
            if all(row.get(name) == value for name, value in fields):
                return row
        return None

    def add(self, row: ResultRow) -> None:
        """Add a row; the first process writes both files, each in one step."""
        self.rows.append(row)
        if is_main_process():
            content = self.content()
            self.written.write_text(self.path, json_text(content))
            self.written.write_text(self.files[1], rows_csv_text([content]))

    def content(self) -> ResultFile:
        """The content of the JSON file."""
        return ResultFile(
            label=self.label,
            training_size=self.training_size,
            identity=asdict(self.identity),
            rows=self.rows,
        )


def read_results(path: Path) -> ResultFile:
    """The content of a results file, but rows without a metric; ValueError if it is none."""
    try:
        content = json.loads(path.read_text(encoding='utf-8'))
        rows = []
        for row in content['rows']:
            if not isinstance(row['metrics'], dict):
                raise TypeError('a row without metrics')
            if row['metrics']:
                rows.append(row)
        content['identity'] = dict(content['identity'])
        content['label'] = str(content['label'])
        content['rows'] = rows
        return content
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f'{path} is no results file of a sweep ({error!r})') from error


def json_text(content: object) -> str:
    """A file of JSON, which has no NaN or infinity, see ``json_value``."""
    return json.dumps(json_value(content), indent=1, allow_nan=False) + '\n'


def json_value(value: Any) -> Any:
    """A value for JSON: arrays are lists, and what is not finite is None."""
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return json_value(value.tolist())
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def rows_csv_text(runs: Sequence[ResultFile]) -> str:
    """A line for each row of the contents of results files, with the metrics of all."""
    lines = []
    for run in runs:
        for row in run['rows']:
            line: dict[str, Any] = {'label': run['label']}
            for name in ('size', 'height', 'width', *SETTINGS):
                line[name] = row.get(name)
            line |= row['metrics']
            line['seconds_per_image'] = row.get('seconds_per_image')
            lines.append(line | row.get('source', {}))
    return csv_text(lines)


def csv_text(lines: Iterable[dict]) -> str:
    """CSV with a column for each key of any line; a cell is empty where a line lacks the key.

    Texts: see ``cell_text``.
    """
    rows = []
    names = dict[str, Any]()
    for line in lines:
        row = {cell_text(name): cell_text(value) for name, value in line.items()}
        rows.append(row)
        names |= row
    file = io.StringIO()
    writer = csv.DictWriter(file, names, lineterminator='\n')
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def cell_text(value: Any) -> Any:
    """The value of a cell: a text that a spreadsheet would take for a formula has a ' before it.

    A single character is none.
    """
    if not isinstance(value, str):
        return value
    text = value.replace('\r', r'\r')  # which csv does not quote
    return f"'{text}" if value.startswith(FORMULA) and len(value) > 1 else text


def headline(names: Iterable[str]) -> str:
    """The main metric of a task: the first known one, else the first."""
    names = list(names)
    return next((name for name in HEADLINES if name in names), names[0])


def print_data(config: Config) -> None:
    """Print what was found in own data that are evaluated."""
    if config.get('own_data') and is_main_process():
        print(config.own_data)


def print_row(row: ResultRow, before: ResultRow | None, note: str = '') -> None:
    """Print a row as a line of the table; above it what is new, the source and the header."""
    source = source_text(row)
    if source and (before is None or source_text(before) != source):
        print(source)
    if before is None:
        print(header_text(row))
    print(f'{row_text(row)}{note}', flush=True)


def source_text(row: ResultRow) -> str:
    """The source of the figures of a row; '' of an earlier version's."""
    return str(FigureSource(**row['source'])) if 'source' in row else ''


def header_text(row: ResultRow) -> str:
    """The header of a table whose first row this is."""
    names = []
    for metric in _shown_metrics(row):
        names.append(metric.rpartition('/')[2].removeprefix('bbox_'))
    names.append('s/tile' if row.get('tile') else 's/image')
    return columns_text(shown_settings(row), names)


def row_text(row: ResultRow) -> str:
    """A row as a line of the table."""
    values = [row['metrics'][name] for name in _shown_metrics(row)]
    values.append(row['seconds_per_image'])
    figures = ['-' if value is None else f'{value:.3f}' for value in values]
    return columns_text(shown_settings(row).values(), figures)


def _shown_metrics(row: ResultRow) -> list[str]:
    """The metrics of a row that the table has columns for, the main one first."""
    main = headline(row['metrics'])
    return list({main: None, **row['metrics']})[:COLUMNS]


def shown_settings(row: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a row by their columns; tiles only of a sweep of tiles."""
    return {name: row[name] for name in WIDTHS if row.get(name) is not None}


def columns_text(
    settings: Iterable[object],
    figures: Iterable[str],
    width: int = 9,
) -> str:
    """A line of a table: a setting, then figures."""
    line = ''
    for setting, room in zip(settings, WIDTHS.values(), strict=False):
        line += f'{setting:<{room - 1}} '
    for figure in figures:
        line += f'{figure:>{width}}'
    return line
