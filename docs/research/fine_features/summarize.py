"""The tables of README.md, between its markers, from results.csv and errors.csv beside this file.

python docs/research/fine_features/summarize.py
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from statistics import mean

HERE = Path(__file__).parent
MARKERS = '<!-- begin: made by summarize.py -->', '<!-- end: made by summarize.py -->'
LEAST = 0.5  # points that a difference has to exceed
THIN, LARGE = ('Pole', 'SignSymbol', 'Pedestrian'), ('Sky', 'Building', 'Road')
NAMES = dict(attention='fine', untrained='untrained neck')
TABLES = (('short', 'attention'), ('long', 'attention'), ('short', 'untrained'))
OTHERS = ('length', 'seed', 'method', 'cpu_seconds')
Rows = dict[tuple[int, str], dict[str, str]]  # by seed and method


def read(length: str) -> Rows:
    with (HERE / 'results.csv').open() as file:
        rows = [row for row in csv.DictReader(file) if row['length'] == length]
    return {(int(row['seed']), row['method']): row for row in rows}


def measures(rows: Rows) -> dict[str, Callable[[dict[str, str]], float]]:
    """Scores of a row, by their names in the table."""

    def average(names: tuple[str, ...]) -> Callable[[dict[str, str]], float]:
        return lambda row: mean(float(row[name]) for name in names)

    first = next(iter(rows.values()))
    classes = [name for name in first if name not in OTHERS]
    means = {'thin classes': average(THIN), 'large classes': average(LARGE)}
    return (
        {name: average((name,)) for name in classes[:2]}
        | means
        | {name: average((name,)) for name in classes[2:]}
    )


def table(length: str, method: str) -> str:
    rows = read(length)
    seeds = sorted({seed for seed, name in rows if name == method})
    columns = (
        f'{length}, {len(seeds)} seeds',
        'bilinear',
        NAMES[method],
        'change',
        'by seed',
    )
    lines = [f'| {" | ".join(columns)} | counts |', '|---|---:|---:|---:|---|---|']
    for measure, score in measures(rows).items():
        before, after = (
            [score(rows[seed, name]) for seed in seeds] for name in ('bilinear', method)
        )
        if not round(max(*before, *after), 1):  # a class that is never recognised
            continue
        changes = [b - a for a, b in zip(before, after, strict=True)]
        span, change = max(changes) - min(changes), mean(changes)
        counts = len(seeds) > 2 and abs(change) > max(span, LEAST)
        by_seed = ', '.join(f'{x:+.1f}' for x in changes)
        cells = (
            measure,
            f'{mean(before):.1f}',
            f'{mean(after):.1f}',
            f'{change:+.1f}',
            by_seed,
        )
        lines.append(f'| {" | ".join(cells)} | {"yes" if counts else "no"} |')
    return '\n'.join(lines)


def errors() -> str:
    with (HERE / 'errors.csv').open() as file:
        rows = [
            f'| {row["method"]} | {float(row["error"]):.3f} |'
            for row in csv.DictReader(file)
        ]
    return '\n'.join(
        ['| features from halved images | error / variance |', '|---|---:|', *rows]
    )


def main() -> None:
    page = HERE / 'README.md'
    before, _, rest = page.read_text().partition(MARKERS[0])
    after = rest.partition(MARKERS[1])[2]
    tables = '\n\n'.join([errors(), *(table(*which) for which in TABLES)])
    page.write_text(f'{before}{MARKERS[0]}\n\n{tables}\n\n{MARKERS[1]}{after}')


if __name__ == '__main__':
    main()
