"""Tables and figures of the study of kinds, kinds.md.

    python docs/research/scaling_study/summarize_kinds.py [OUT] [BOXES]

gathers the results of OUT, a folder of ``run.py --study kinds``, into kinds.csv, and of BOXES, a
folder of boxes.py, into boxes.csv. From these, and from results.csv of the study of scalings, it
writes the part of kinds.md between its two markers and kinds.png.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median

import kind_predictions
import verdicts
from matplotlib.figure import Figure
from plan import FACTORS, chosen, kind_scalings
from scores import (
    COLUMNS,
    HERE,
    Row,
    Scores,
    Values,
    counts,
    cpu_hours,
    gather,
    less,
    read,
    spread,
    write,
)
from summarize import MARKERS, cell, header, line

from rope_dense.utils.disk import atomic_write_text

PAGE, RESULTS, BOXES, SPECTRA = (
    HERE / name for name in ('kinds.md', 'kinds.csv', 'boxes.csv', 'spectra.csv')
)
NAMES = {
    'axial': 'axial',
    'mixed': 'mixed',
    'golden': 'golden',
    'golden_rescale': 'golden, rescaled in training',
    'golden_index': 'golden, in patches',
    'simplex': 'simplex',
    'rope_id': 'RoPE-ID',
    'rope_id_rescale': 'RoPE-ID, rescaled in training',
    'fire': 'FIRE',
    'alibi': 'ALiBi',
    'lookhere': 'LookHere',
    'pape': 'PaPE',
    'axial_fire': 'axial + FIRE',
    'axial_alibi': 'axial + ALiBi',
    'ape': 'APE',
    'none': 'no positions',
}
SCALING_NAMES = {
    'none': 'none',
    'linear': 'linear',
    'by_parts': 'by parts',
    'distances': 'distances',
    'linear+distances': 'linear, distances',
}
DRAWN = (
    'axial',
    'rope_id',
    'golden',
    'fire',
    'alibi',
    'lookhere',
    'pape',
    'axial_alibi',
    'ape',
)


def main(argv: Sequence[str]) -> None:
    if argv:
        write(gather(Path(argv[0])), RESULTS)
        print(f'{cpu_hours(Path(argv[0])):.1f} CPU hours')
    if argv[1:]:
        write(gather_boxes(Path(argv[1])), BOXES)
    before, rest = PAGE.read_text(encoding='utf-8').split(MARKERS[0])
    after = rest.split(MARKERS[1])[1]
    lines = [before + MARKERS[0], '', *results(), '', MARKERS[1] + after]
    atomic_write_text(PAGE, '\n'.join(lines))
    draw(Scores(rows_of_both()), HERE / 'kinds.png')


def rows_of_both() -> list[Row]:
    """Rows of the first study, and after them of this one, which replace runs with their name."""
    first = [
        row
        for row in read()
        if row['backbone'] == 'vit' and not row['tuned'] + row['tested']
    ]
    return first + read(RESULTS)


def gather_boxes(folder: Path) -> list[Row]:
    """Rows as of segmentation, the way is 'boxes' and the score AP of boxes."""
    fixed = dict(way='boxes', backbone='vit', tuned='', tested='', windows='kept')
    rows = []
    for path in sorted(folder.glob('*/boxes.json')):
        for row in json.loads(path.read_text(encoding='utf-8'))['rows']:
            row = row | fixed | dict(mIoU=row['bbox_mAP'])
            rows.append({name: str(row[name]) for name in COLUMNS})
    return rows


def results() -> list[str]:
    """The lines of the page between its markers."""
    scores, boxes = (
        Scores(rows_of_both()),
        Scores(read(BOXES) if BOXES.exists() else []),
    )
    lines: list[str] = []
    for way in ('finer', 'extent', 'augmented'):
        factors = FACTORS[way] + ((4.0,) if way == 'finer' else ())
        lines += [f'*{way.capitalize()}*, mIoU:', '', *table(scores, way, factors), '']
    if boxes.values:
        lines += ['*Boxes*, AP:', '', *table(boxes, 'boxes', (1.0, 1.5, 2.0, 3.0)), '']
    lines += ['*Beside axial with linear*, points:', '', *beside_axial(scores), '']
    lines += ['*Frequencies of mixed*, trained:', '', *spectra(), '']
    lines += [repeated(), '', '### Predictions', '']
    checks = [
        *kind_predictions.checks(scores),
        *kind_predictions.boxes(boxes),
        *spectrum_checks(),
    ]
    return [*lines, *verdicts.table(checks)]


def table(scores: Scores, way: str, factors: Sequence[float]) -> list[str]:
    """A line for each kind and scaling that was run, a column for each factor."""
    names = [f'**{factor:g}**' if factor == 1 else f'{factor:g}' for factor in factors]
    lines = header(['positions', 'scaling', 'seeds'], names)
    for kind, name in NAMES.items():
        for how in SCALING_NAMES:
            values = [scores(way, kind, factor, how) for factor in factors]
            if any(values):
                seeds = len(max(values, key=len))
                lines.append(
                    line([name, SCALING_NAMES[how], str(seeds), *map(cell, values)])
                )
    return lines


def beside_axial(scores: Scores) -> list[str]:
    """Differences of the arms with three seeds from axial, each with its best scaling at 2."""
    lines = header(['positions', 'way'], ['1', '1 counts', '2', '2 counts'])
    for way, _, kind in chosen():
        hows = ('none', *kind_scalings(kind))
        at_twice = max((scores(way, kind, 2, how) for how in hows), key=mean_of)
        pairs = [(scores(way, kind, 1), scores(way, 'axial', 1))]
        pairs += [(at_twice, scores(way, 'axial', 2, 'linear'))]
        cells = []
        for values, axial in pairs:
            ahead = less(values, axial)
            cells += [
                f'{mean_of(ahead):+.1f} ({spread(ahead):.1f})',
                'yes' if counts(ahead) else 'no',
            ]
        lines.append(line([NAMES[kind], way, *cells]))
    return lines


def mean_of(values: Values) -> float:
    return mean(values.values())


def repeated() -> str:
    """How far runs of the first study that were repeated here differ from it."""
    old, new = Scores(read()), Scores(read(RESULTS))
    shared = old.values.keys() & new.values.keys()
    differences = [
        abs(old.values[key][seed] - new.values[key][seed])
        for key in shared
        for seed in old.values[key].keys() & new.values[key].keys()
    ]
    return (
        f'{len(differences)} figures of the study of scalings were measured again here, from '
        f'runs with the same seeds: they differ by {median(differences):.1f} points in the '
        f'median and by {max(differences):.1f} at most.'
    )


def read_spectra() -> list[Row]:
    with open(SPECTRA, newline='', encoding='utf-8') as file:
        return list(csv.DictReader(file))


def spectra() -> list[str]:
    """A line for each block of each model."""
    rows = read_spectra()
    return [
        *header([*rows[0]][:2], [*rows[0]][2:]),
        *(line([*row.values()]) for row in rows),
    ]


def spectrum_checks() -> list[verdicts.Check]:
    """The quantities of prediction 10, the worst ones over blocks and ways."""
    rows = read_spectra()
    ratios = [float(row['median after']) / float(row['median before']) for row in rows]
    growth = [float(row['slow after']) - float(row['slow before']) for row in rows]
    name = 'trained, frequencies of mixed:'
    return [
        verdicts.Check(
            10, f'{name} smallest ratio of medians', {0: min(ratios)}, low=0.7
        ),
        verdicts.Check(
            10, f'{name} largest ratio of medians', {0: max(ratios)}, high=1.4
        ),
        verdicts.Check(
            10, f'{name} growth of the slow share', {0: max(growth)}, high=10
        ),
    ]


def draw(scores: Scores, path: Path) -> None:
    """mIoU against the size of test images: without a scaling, and with the best one of each."""
    figure = Figure(figsize=(9.5, 4.2), layout='constrained')
    panels = figure.subplots(1, 2, sharey=True)
    for axes, scaled in zip(panels, (False, True), strict=True):
        for index, kind in enumerate(DRAWN):
            points = {
                factor: max(mean(values.values()) for values in tests)
                for factor in (1.0, 1.5, 2.0, 3.0, 4.0)
                if (tests := scaled_tests(scores, kind, factor, scaled))
            }
            style = '--' if kind == 'ape' else '-'
            axes.plot(
                *zip(*points.items(), strict=True),
                f'o{style}',
                color=f'C{index}',
                markersize=3,
                label=NAMES[kind],
            )
        title = 'the best scaling of each' if scaled else 'no scaling'
        axes.set(
            title=f'finer, {title}', xlabel='side of test images / side in training'
        )
        axes.spines[['top', 'right']].set_visible(False)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel('mIoU (%)')
    panels[1].legend(frameon=False, fontsize=7)
    figure.savefig(path, dpi=120)


def scaled_tests(
    scores: Scores, kind: str, factor: float, scaled: bool
) -> list[Values]:
    """The figures of a kind in *finer*, with every scaling or with none."""
    hows = ('none', *(kind_scalings(kind) if scaled else ()))
    found = (scores('finer', kind, factor, how) for how in hows)
    return [values for values in found if values]


if __name__ == '__main__':
    main(sys.argv[1:])
