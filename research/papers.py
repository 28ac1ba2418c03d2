"""Results of papers, in the form of the results of a sweep."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import mmengine

from rope_dense.measure.results import ResultFile, read_results

TABLES = Path(__file__).with_name('paper_tables.yml')
TRAINING_SIZE = (224, 224)  # height and width in pixels, of all models of the tables


@cache
def read_paper_tables() -> dict[str, dict]:
    """The tables of ``paper_tables.yml`` by name."""
    return mmengine.load(TABLES)['tables']


def expand_sizes(sizes: Sequence[str]) -> list[str]:
    """Sizes of ``--sizes``, with the sizes of a table in place of its name; see ``find_table``."""
    expanded: list[str] = []
    for size in sizes:
        is_name = size[:1].isalpha()
        expanded += (
            map(str, find_table('--sizes', size)['sizes']) if is_name else [size]
        )
    return expanded


def find_table(option: str, name: str) -> dict:
    """A table over image sizes; ValueError, which names the option, for another name."""
    tables = {
        key: table for key, table in read_paper_tables().items() if 'sizes' in table
    }
    if name not in tables:
        raise ValueError(
            f'{option} {name}: no such table of a paper'
            f'{", and no size (128 or 96x128)" if option == "--sizes" else ""}; '
            f'{", ".join(tables)} are known'
        )
    return tables[name]


def read_runs(option: str, name: str) -> list[ResultFile]:
    """Results of a file, or rows of a paper's table as if each were a file.

    Args:
        option: of the command line, for messages.
        name: a path, TABLE, or TABLE:ROW.

    Raises:
        ValueError: there is no such file, table or row, or it is a table of differences.
    """
    table_name, _, row = name.partition(':')
    if table_name not in read_paper_tables():
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
        raise ValueError(
            f'{option} {name}: no such row; known are {", ".join(table["rows"])}'
        )
    return [as_run(table_name, row) for row in ([row] if row else table['rows'])]


def as_run(table_name: str, row: str) -> Any:
    """A row of a table as the content of a results file."""
    table = read_paper_tables()[table_name]
    settings = dict(scaling=None, window=None, slide=None)  # do not apply
    rows = [
        dict(
            settings,
            size=str(side),
            height=side,
            width=side,
            metrics={table['metric']: value},
        )
        for side, value in zip(table['sizes'], table['rows'][row], strict=True)
    ]
    return dict(label=f'{row}, {table_name}', training_size=TRAINING_SIZE, rows=rows)
