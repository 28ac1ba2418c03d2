"""Results of papers, in the form of the results of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import mmengine

from ..evaluation.results import read_results

TABLES = Path(__file__).with_name('paper_tables.yml')
TRAINING_SIZE = (224, 224)  # height and width in pixels, of all models of the tables


@cache
def paper_tables() -> dict[str, dict]:
    """The tables of ``paper_tables.yml`` by name."""
    return mmengine.load(TABLES)['tables']


def expand_sizes(sizes: Sequence[str]) -> list[str]:
    """Sizes of ``--sizes``, with the sizes of a table in place of its name; see ``find_table``."""
    expanded: list[str] = []
    for size in sizes:
        is_name = size[:1].isalpha()
        expanded += map(str, find_table('--sizes', size)['sizes']) if is_name else [size]
    return expanded


def find_table(option: str, name: str) -> dict:
    """A table over image sizes; ValueError, which names the option, for another name."""
    tables = {key: table for key, table in paper_tables().items() if 'sizes' in table}
    if name not in tables:
        raise ValueError(
            f'{option} {name}: no such table of a paper'
            f'{", and no size (128 or 96x128)" if option == "--sizes" else ""}; '
            f'{", ".join(tables)} are known'
        )
    return tables[name]


def read_runs(option: str, name: str) -> list[dict]:
    """Results of a file, or rows of a paper's table as if each were a file.

    Args:
        option: of the command line, for messages.
        name: a path, TABLE, or TABLE:ROW.

    Raises:
        ValueError: there is no such file, table or row, or it is a table of differences.
    """
    table_name, _, row = name.partition(':')
    if table_name not in paper_tables():
        try:
            return [read_results(Path(name))]
        except ValueError as error:
            raise ValueError(
                f'{option}: {error}; or give the table of a paper, TABLE or TABLE:ROW, of those in '
                'docs/research/classification.md'
            ) from error
    table = find_table(option, table_name)
    if 'baseline' in table:
        raise ValueError(
            f'{option} {name}: its numbers are differences to {table["baseline"]}; give rows of '
            f'{table["baseline"].partition(":")[0]}'
        )
    if row and row not in table['rows']:
        raise ValueError(f'{option} {name}: no such row; known are {", ".join(table["rows"])}')
    return [as_run(table_name, row) for row in ([row] if row else table['rows'])]


def as_run(table_name: str, row: str) -> dict:
    """A row of a table as the content of a results file."""
    table = paper_tables()[table_name]
    settings = dict(scaling=None, window=None, slide=None)  # do not apply
    rows = [
        dict(settings, size=str(side), height=side, width=side, metrics={table['metric']: value})
        for side, value in zip(table['sizes'], table['rows'][row], strict=True)
    ]
    return dict(label=f'{row}, {table_name}', training_size=TRAINING_SIZE, rows=rows)


def relative_to(baseline: dict, run: dict, metric: str) -> tuple[dict, list[int]]:
    """A run with the difference of a metric to a baseline, at the sizes (shorter sides) of both.

    Args:
        baseline, run: contents of results files; the baseline as for ``rows_by_side``.

    Returns:
        The run, and the sizes that only the run has.

    Raises:
        ValueError: see ``rows_by_side``; or no size is in both.
    """
    values = {side: row['metrics'].get(metric) for side, row in rows_by_side(baseline).items()}
    rows, left_out = [], []
    for row in run['rows']:
        value, side = row['metrics'].get(metric), shorter_side(row)
        if value is None:
            continue
        if values.get(side) is None:
            left_out.append(side)
        else:
            rows.append(dict(row, metrics={metric: round(value - values[side], 6)}))
    if not rows:
        raise ValueError(
            f'--relative-to: {run["label"]} has {metric} at no size of {baseline["label"]}, '
            f'{", ".join(map(str, values))} pixels'
        )
    return dict(run, rows=rows), sorted(set(left_out))


def rows_by_side(baseline: dict) -> dict[int, dict]:
    """The rows of a baseline by their size (shorter side).

    Raises:
        ValueError: it has several settings, or several rows of a size.
    """
    settings = {(row['scaling'], row['window'], row['slide']) for row in baseline['rows']}
    rows = {shorter_side(row): row for row in baseline['rows']}
    if len(settings) > 1 or len(rows) < len(baseline['rows']):
        sizes = (f'{row["height"]} x {row["width"]}' for row in baseline['rows'])
        raise ValueError(
            f'--relative-to: {baseline["label"]} must have one scaling, window and slide, and one '
            f'result for each shorter side; it has {", ".join(sorted(map(str, settings)))} and '
            f'{", ".join(sizes)} pixels'
        )
    return rows


def shorter_side(row: dict) -> int:
    """The size of the images of a row, in pixels."""
    return min(row['height'], row['width'])
