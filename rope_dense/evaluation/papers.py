"""What papers report, in the form of the results of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import mmengine

from .results import read_results

TABLES = Path(__file__).with_name('paper_tables.yml')
TRAINING_SIZE = (224, 224)  # height and width in pixels, of all models of the tables


@cache
def paper_tables() -> dict[str, dict]:
    """The tables of ``paper_tables.yml`` by name."""
    return mmengine.load(TABLES)['tables']


def expand_sizes(sizes: Sequence[str]) -> list[str]:
    """Sizes of ``--sizes``, where the name of a table stands for its sizes.

    Raises:
        ValueError: a name that is of no table, or of one without sizes.
    """
    expanded: list[str] = []
    for size in sizes:
        is_name = size[:1].isalpha()
        expanded += map(str, find_table('--sizes', size)['sizes']) if is_name else [size]
    return expanded


def find_table(option: str, name: str) -> dict:
    """A table over image sizes; ValueError, which names the option, if there is none."""
    tables = {name: table for name, table in paper_tables().items() if 'sizes' in table}
    if name not in tables:
        raise ValueError(
            f'{option} {name}: no such table of a paper; {", ".join(tables)} are known'
        )
    return tables[name]


def read_runs(option: str, name: str) -> list[dict]:
    """Results of a file, or rows of a paper's table as if each were a file.

    Args:
        option: of the command line, for messages.
        name: a path, TABLE, or TABLE:ROW.

    Raises:
        ValueError: there is no such file, table or row.
    """
    table_name, _, row = name.partition(':')
    if table_name not in paper_tables():
        try:
            return [read_results(Path(name))]
        except ValueError as error:
            raise ValueError(
                f'{option}: {error}; or give the table of a paper, TABLE or TABLE:ROW, of '
                f'{", ".join(paper_tables())}'
            ) from error
    table = find_table(option, table_name)
    if row and row not in table['rows']:
        raise ValueError(f'{option} {name}: no such row; known are {", ".join(table["rows"])}')
    return [as_run(table_name, row) for row in ([row] if row else table['rows'])]


def as_run(table_name: str, row: str) -> dict:
    """A row of a table as the content of a results file."""
    table = paper_tables()[table_name]
    settings = dict(scaling=None, window=None, slide=None)  # of no account
    rows = [
        dict(settings, size=str(side), height=side, width=side, metrics={table['metric']: value})
        for side, value in zip(table['sizes'], table['rows'][row], strict=True)
    ]
    return dict(label=f'{row}, {table_name}', training_size=TRAINING_SIZE, rows=rows)


def relative_to(baseline: dict, run: dict, metric: str) -> dict:
    """A run with a metric less that of a baseline, at the sizes (shorter sides) that both have.

    Args:
        baseline, run: contents of results files; the baseline with one setting.

    Raises:
        ValueError: the baseline has several settings, or no size is in both.
    """
    settings = {(row['scaling'], row['window'], row['slide']) for row in baseline['rows']}
    if len(settings) > 1:
        raise ValueError(
            f'--relative-to: {baseline["label"]} must have one scaling, window and slide, and has '
            f'{", ".join(sorted(map(str, settings)))}'
        )
    values = {shorter_side(row): row['metrics'].get(metric) for row in baseline['rows']}
    rows = [
        dict(row, metrics={metric: round(row['metrics'][metric] - values[shorter_side(row)], 6)})
        for row in run['rows']
        if None not in (row['metrics'].get(metric), values.get(shorter_side(row)))
    ]
    if not rows:
        raise ValueError(
            f'--relative-to: {run["label"]} has {metric} at no size of {baseline["label"]}, '
            f'{", ".join(map(str, values))} pixels'
        )
    return dict(run, rows=rows)


def shorter_side(row: dict) -> int:
    return min(row['height'], row['width'])
