"""Tables and figures of the study.

    python docs/research/scaling_study/summarize.py [OUT]

gathers the results of the finished runs in OUT, a folder of run.py, into results.csv beside this
file. From results.csv it then writes the part of README.md between its two markers, tables.md,
growth.png and by_parts.png.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import predictions
import verdicts
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from plan import FACTORS, PARTS, SEEDS, runs
from scores import (
    HERE,
    RESULTS,
    Row,
    Scores,
    Values,
    cpu_hours,
    gather,
    read,
    spread,
    write,
)

from rope_dense.utils.disk import atomic_write_text

PAGE, TABLES = HERE / 'README.md', HERE / 'tables.md'
TITLE = """# All other tables of the scaling study

mIoU in percent, mean over the seeds and their range in brackets, by the side of test images over
that of training. See [README.md](README.md). Made by `summarize.py`."""
MARKERS = '<!-- begin: made by summarize.py -->', '<!-- end: made by summarize.py -->'
NAMES = {
    'ape': 'APE',
    'bias': 'bias table',
    'log_axial': 'log-axial',
    'none': 'no positions',
    'axial': 'axial',
    'mixed': 'mixed',
    'axial_rescale': 'axial, rescaled in training',
    'mixed_rescale': 'mixed, rescaled in training',
    'axial_reference': 'axial, fitting the grid',
    'mixed_reference': 'mixed, fitting the grid',
}
SCALING_NAMES = {
    'none': 'none',
    'linear': 'linear',
    **{f'linear:{s:g}': f'linear, factor {s:g}' for s in (0.25, 0.5, 0.75, 1.5, 2)},
    'ntk': 'NTK',
    'by_parts': 'by parts (1, 2)',
} | {
    f'by_parts {alpha:g} {beta:g}': f'by parts ({alpha:g}, {beta:g})'
    for alpha, beta in PARTS
}
COMMON = ('none', 'linear', 'linear:0.5', 'ntk', 'by_parts')
PLAIN = ('ape', 'log_axial', 'none')
ROTARY = ('axial', 'mixed')
COLOURS = {
    'none': '#e76f51',
    'linear': '#269db2',
    'by_parts': '#8a5fb0',
    'ntk': '#58ab60',
}
OTHER_COLOURS = {'ape': '#222222', 'log_axial': '#c79a00', 'none': '#999999'}
MARKS = {'axial': 'o', 'mixed': 's'}
Setting = tuple[str, str]  # position, scaling


def main(argv: Sequence[str]) -> None:
    if argv:
        write(gather(Path(argv[0])))
        print(f'{cpu_hours(Path(argv[0])):.1f} CPU hours')
    rows = read()
    scores = Scores(rows)
    atomic_write_text(PAGE, with_results(PAGE.read_text(encoding='utf-8'), rows))
    atomic_write_text(TABLES, '\n'.join(tables(rows)))
    draw_growth(scores, HERE / 'growth.png')
    draw_by_parts(scores, HERE / 'by_parts.png')
    print(f'{finished(rows)} of {len(runs())} runs are in {RESULTS.name}')


def with_results(page: str, rows: list[Row]) -> str:
    """The page with the tables of ``rows`` between its markers."""
    before, rest = page.split(MARKERS[0])
    after = rest.split(MARKERS[1])[1]
    return '\n'.join([before + MARKERS[0], '', *results(rows), '', MARKERS[1] + after])


def finished(rows: list[Row]) -> int:
    names = ('seed', 'way', 'backbone', 'position', 'tuned', 'tested')
    return len({tuple(row[name] for name in names) for row in rows})


def results(rows: list[Row]) -> list[str]:
    """The lines of the page."""
    scores = Scores(rows)
    lines = [
        f'{finished(rows)} of {len(runs())} runs are finished.' + progress(rows),
        '',
    ]
    settings = [(position, 'none') for position in PLAIN]
    settings += [(position, how) for position in ROTARY for how in COMMON]
    for way in ('finer', 'extent', 'augmented'):
        lines += by_factor(scores, way, settings)
    lines += ['By parts and temperatures, global ViT:', '', *sweep(scores)]
    return [
        *lines,
        '### Predictions',
        '',
        *verdicts.summary(predictions.checks(scores)),
    ]


def tables(rows: list[Row]) -> list[str]:
    """The lines of the page of all other tables."""
    scores = Scores(rows)
    augmented = [(f'{p}_rescale', how) for p in ROTARY for how in SCALING_NAMES]
    augmented += [(f'{p}_reference', 'none') for p in ROTARY]
    every = [(position, how) for position in NAMES for how in SCALING_NAMES]
    ways = ('finer', 'extent')
    sections = {
        'Global ViT, positions that are not told': [
            text for way in ways for text in by_factor(scores, way, augmented)
        ],
        'Global ViT, objects and grid that grow differently': [
            text
            for way, tested in (ways, ways[::-1])
            for text in by_factor(scores, way, every, tested=tested)
        ],
        'Global ViT, 50 iterations at twice the size': tuned(scores),
        'ViT in windows': [
            text
            for way in ways
            for text in by_factor(scores, way, every, 'vit_windows')
        ],
        'Swin': [
            text
            for way in ways
            for windows in ('kept', 'grown')
            for text in by_factor(scores, way, every, 'swin', windows)
        ],
        'Predictions': [*verdicts.table(predictions.checks(scores)), ''],
    }
    lines = [
        TITLE,
        '',
        f'{finished(rows)} of {len(runs())} runs are finished.' + progress(rows),
    ]
    for title, body in sections.items():
        lines += ['', f'## {title}', '', *body[:-1]] if body else []
    return [*lines, '']


def progress(rows: list[Row]) -> str:
    """What is missing of each seed, in a sentence, if anything is."""
    parts = []
    for seed in SEEDS:
        number = finished([row for row in rows if row['seed'] == str(seed)])
        if number < len(runs([seed])):
            parts.append(f'seed {seed}: {number} of {len(runs([seed]))}')
    return f' Preliminary: {", ".join(parts)}.' if parts else ''


def by_factor(
    scores: Scores,
    way: str,
    settings: Sequence[Setting],
    backbone: str = 'vit',
    windows: str = 'kept',
    tested: str = '',
) -> list[str]:
    """A line for each setting that was run, a column for each factor of the size."""
    lines, factors = [], FACTORS[tested or way]
    for position, how in settings:
        values = [
            scores(
                way, position, f, how, backbone=backbone, windows=windows, tested=tested
            )
            for f in factors
        ]
        if any(values):
            lines.append(
                line([NAMES[position], SCALING_NAMES[how], *map(cell, values)])
            )
    factors = [
        f'**{factor:g}**' if factor == 1 else f'{factor:g}' for factor in factors
    ]
    title = f'*{way.capitalize()}*'
    title += f' in training, *{tested}* in testing' if tested else ''
    title += f', windows {windows}:' if backbone == 'swin' else ':'
    return (
        [title, '', *header(['positions', 'scaling'], factors), *lines, '']
        if lines
        else []
    )


def sweep(scores: Scores) -> list[str]:
    """A line for each scaling, with figures at 1.5 and 2 for both ways and positions."""
    columns = [
        (p, way, f) for p in ROTARY for way in ('finer', 'extent') for f in (1.5, 2)
    ]
    names = ['none', 'linear', 'ntk', *sorted(predictions.PARTS_NAMES, key=parts_key)]
    lines = header(['scaling'], [f'{p} {way} {factor:g}' for p, way, factor in columns])
    for how in [*names, *predictions.TEMPERATURES]:
        values = [
            scores(way, position, factor, how) for position, way, factor in columns
        ]
        kind, _, temperature = how.partition('+')
        name = SCALING_NAMES[kind] + (
            f', temperature {temperature}' if temperature else ''
        )
        lines.append(line([name, *map(cell, values)]))
    return [*lines, '']


def parts_key(how: str) -> float:
    """Alpha and beta together: the more, the nearer by parts is to linear."""
    return sum(map(float, how.split()[1:] or (1, 2)))


def tuned(scores: Scores) -> list[str]:
    """A line for each fine-tuning."""
    lines = []
    for way in ('finer', 'extent'):
        for position in NAMES:
            for how in ('none', 'linear', 'by_parts'):
                after = scores(way, position, 2, how, tuned=how)
                if after:
                    values = scores(way, position, 2, how), after
                    values += (scores(way, position, 1, tuned=how),)
                    name = SCALING_NAMES[how]
                    lines.append(line([way, NAMES[position], name, *map(cell, values)]))
    left, right = (
        ['trained', 'positions', 'scaling'],
        ['before', 'after', 'after, at 1'],
    )
    return [*header(left, right), *lines, ''] if lines else []


def header(left: Sequence[str], right: Sequence[str]) -> list[str]:
    return [line([*left, *right]), '|' + '---|' * len(left) + '---:|' * len(right)]


def line(cells: Sequence[str]) -> str:
    return f'| {" | ".join(cells)} |'


def cell(values: Values) -> str:
    """The mean over the seeds, and their range where there are several."""
    if not values:
        return '-'
    width = f' ({spread(values):.1f})' if len(values) > 1 else ''
    return f'{mean(values.values()):.1f}{width}'


def draw_growth(scores: Scores, path: Path) -> None:
    """mIoU against the size of test images for the global ViT; thin lines are single seeds."""
    ways = ('finer', 'extent', 'augmented')
    figure = Figure(figsize=(4.1 * len(ways), 7), layout='constrained')
    panels = figure.subplots(2, len(ways), sharey=True, squeeze=False)
    for axes_of_row, position in zip(panels, ROTARY, strict=True):
        for axes, way in zip(axes_of_row, ways, strict=True):
            for other, colour in OTHER_COLOURS.items():
                draw_line(axes, scores, way, (other, 'none'), colour, NAMES[other])
            for how, colour in COLOURS.items():
                name = f'{position}, {SCALING_NAMES[how]}'
                draw_line(
                    axes, scores, way, (position, how), colour, name, MARKS[position]
                )
            axes.set(title=f'{position}, {way}', xticks=FACTORS[way])
            axes.axvline(1, color='gray', linestyle=(0, (1, 2)), linewidth=1)
            axes.spines[['top', 'right']].set_visible(False)
            axes.grid(alpha=0.3)
            axes.set_xlabel('side of test images / side in training')
        axes_of_row[0].set_ylabel('mIoU (%)')
        axes_of_row[0].legend(frameon=False, fontsize=7)
    figure.savefig(path, dpi=120)
    picture = Image.open(path).convert('RGB').quantize(128, dither=Image.Dither.NONE)
    picture.save(path, optimize=True)  # a quarter of the bytes


def draw_line(
    axes: Axes,
    scores: Scores,
    way: str,
    setting: Setting,
    colour: str,
    name: str,
    marker: str = 'd',
) -> None:
    """A scaling's line begins at the training size, where all are alike."""
    position, how = setting
    values = {factor: scores(way, position, factor, how) for factor in FACTORS[way]}
    if how != 'none':
        values[1.0] = scores(way, position, 1.0)
    x = [factor for factor, figures in values.items() if figures]
    if how != 'none' and len(x) < 2:
        return
    for seed in SEEDS:
        known = [factor for factor in x if seed in values[factor]]
        figures = [values[factor][seed] for factor in known]
        axes.plot(known, figures, color=colour, linewidth=0.5, alpha=0.5)
    means = [mean(values[factor].values()) for factor in x]
    style = '--' if position in PLAIN else '-'
    axes.plot(x, means, style, color=colour, marker=marker, markersize=4, label=name)


def draw_by_parts(scores: Scores, path: Path) -> None:
    """mIoU at twice the size for each scaling, from none to linear; dots are single seeds."""
    figure = Figure(figsize=(9, 4), layout='constrained')
    names = ['none', *sorted(predictions.PARTS_NAMES, key=parts_key), 'linear']
    for axes, position in zip(figure.subplots(1, 2, sharey=True), ROTARY, strict=True):
        for way, colour in dict(finer='#54699a', extent='#e76f51').items():
            values = {how: scores(way, position, 2, how) for how in names}
            x = [index for index, how in enumerate(names) if values[how]]
            means = [mean(values[names[index]].values()) for index in x]
            axes.plot(
                x, means, color=colour, marker=MARKS[position], markersize=4, label=way
            )
            for index in x:
                seeds = values[names[index]].values()
                axes.plot(
                    [index] * len(seeds),
                    seeds,
                    '.',
                    color=colour,
                    markersize=3,
                    alpha=0.6,
                )
        labels = [SCALING_NAMES[how].removeprefix('by parts ') for how in names]
        axes.set_xticks(range(len(names)), labels, rotation=60)
        axes.set(
            title=position, xlabel='scaling; brackets are (alpha, beta) of by parts'
        )
        axes.spines[['top', 'right']].set_visible(False)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel('mIoU (%) at twice the size')
    figure.axes[0].legend(frameon=False)
    figure.savefig(path, dpi=120)


if __name__ == '__main__':
    main(sys.argv[1:])
