"""Tables of the study of temperatures in a wider view, wider.md.

    python docs/research/scaling_study/summarize_wider.py [OUT]

gathers the results of OUT, a folder of ``run.py --study wider``, into wider.csv, and writes the
part of wider.md between its two markers.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from plan import KEPT, SEEDS
from scores import HERE, Scores, Values, counts, gather, less, read, spread, write
from summarize import MARKERS, cell, header, line

from rope_dense.utils.disk import atomic_write_text

PAGE, RESULTS = HERE / 'wider.md', HERE / 'wider.csv'
COLUMNS = [(position, size) for position in ('axial', 'mixed') for size in (1.5, 2)]
NTK = ('by_parts:ntk', 'by_parts:ntk16')


def main(argv: Sequence[str]) -> None:
    if argv:
        write(gather(Path(argv[0])), RESULTS)
    before, rest = PAGE.read_text(encoding='utf-8').split(MARKERS[0])
    after = rest.split(MARKERS[1])[1]
    lines = [before + MARKERS[0], '', *results(), '', MARKERS[1] + after]
    atomic_write_text(PAGE, '\n'.join(lines))


def results() -> list[str]:
    """The lines of the page: mIoU of each scaling, and gains with how many are above 0."""
    scores = Scores(read(RESULTS))

    def values(position: str, size: float, how: str) -> Values:
        return scores('extent', position, size, how)

    names = [f'{position} {size:g}' for position, size in COLUMNS]
    figures = header(['scaling'], names)
    gains = header(['gain of', 'over'], names)
    for how in KEPT:
        figures.append(line([how, *(cell(values(*at, how)) for at in COLUMNS)]))
    others = [(f'{how}+{kind}', how) for kind in ('log', 'yarn') for how in KEPT]
    others += [(how, 'by_parts') for how in NTK]
    for how, over in others:
        figures.append(line([how, *(cell(values(*at, how)) for at in COLUMNS)]))
        texts = []
        for at in COLUMNS:
            texts.append(gain_text(less(values(*at, how), values(*at, over))))
        gains.append(line([how, over, *texts]))
    return [*figures, '', *gains]


def gain_text(gains: Values) -> str:
    """The mean, the range, how many are above 0, and bold if the difference counts."""
    if not gains:
        return '-'
    above = sum(gain > 0 for gain in gains.values())
    text = f'{mean(gains.values()):+.2f}'
    if counts(gains) and len(gains) >= len(SEEDS):
        text = f'**{text}**'
    return f'{text} ({spread(gains):.2f}), {above} of {len(gains)}'


if __name__ == '__main__':
    main(sys.argv[1:])
