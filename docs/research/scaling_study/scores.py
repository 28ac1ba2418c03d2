"""The figures of the study, as results.csv has them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from statistics import mean

from plan import Run

HERE = Path(__file__).parent
RESULTS = HERE / 'results.csv'
COLUMNS = (
    *('seed', 'way', 'backbone', 'position', 'tuned'),
    *('tested', 'factor', 'windows', 'scaling', 'mIoU'),
)
LEAST = 0.5  # points, of a difference that counts
Row = dict[str, str]
Values = dict[int, float]  # by seed


def gather(folder: Path) -> list[Row]:
    """A row for each test of the finished runs in ``folder``/results."""
    rows = []
    for path in sorted(folder.glob('results/*.json')):
        content = json.loads(path.read_text(encoding='utf-8'))
        run = asdict(Run(**content['run']))
        for point in content['points']:
            windows = 'grown' if point['grown_windows'] else 'kept'
            row = run | point | dict(windows=windows)
            rows.append(
                {name: '' if row[name] is None else str(row[name]) for name in COLUMNS}
            )
    return sorted(rows, key=lambda row: [row[name] for name in COLUMNS])


def cpu_hours(folder: Path) -> float:
    """What the finished runs took."""
    paths = folder.glob('results/*.json')
    seconds = [
        json.loads(path.read_text(encoding='utf-8'))['cpu_seconds'] for path in paths
    ]
    return sum(sum(of_run.values()) for of_run in seconds) / 3600


def write(rows: list[Row], path: Path = RESULTS) -> None:
    with open(path, 'w', newline='', encoding='utf-8') as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator='\n')
        writer.writeheader()
        writer.writerows(rows)


def read(path: Path = RESULTS) -> list[Row]:
    with open(path, newline='', encoding='utf-8') as file:
        return list(csv.DictReader(file))


class Scores:
    """mIoU in percent by seed, for each setting."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.values: dict[tuple[str, ...], Values] = {}
        for row in rows:
            key = tuple(row[name] for name in COLUMNS[1:-1])
            self.values.setdefault(key, {})[int(row['seed'])] = float(row['mIoU'])

    def __call__(
        self,
        way: str,
        position: str,
        factor: float,
        scaling: str = 'none',
        *,
        backbone: str = 'vit',
        tuned: str = '',
        tested: str = '',
        windows: str = 'kept',
    ) -> Values:
        """Empty if no such run is finished."""
        key = (
            way,
            backbone,
            position,
            tuned,
            tested,
            str(float(factor)),
            windows,
            scaling,
        )
        return self.values.get(key, {})

    def change(
        self,
        way: str,
        position: str,
        scaling: str = 'none',
        *,
        backbone: str = 'vit',
        windows: str = 'kept',
    ) -> Values:
        """From the training size to twice that."""
        larger = self(way, position, 2, scaling, backbone=backbone, windows=windows)
        return less(larger, self(way, position, 1, backbone=backbone))


def less(values: Values, others: Values) -> Values:
    """Differences, seed by seed, where both are known."""
    return {
        seed: values[seed] - others[seed]
        for seed in sorted(values.keys() & others.keys())
    }


def spread(values: Values) -> float:
    """The range over the seeds."""
    return max(values.values()) - min(values.values())


def counts(difference: Values) -> bool:
    """Whether a difference is one, see "What counts as a difference" in README.md."""
    return abs(mean(difference.values())) > max(spread(difference), LEAST)
