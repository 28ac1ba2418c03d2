"""The figures, from the rows of ``tables``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from rope_dense.measure.plot import COLOURS, MARKERS

from .tables import SEQUENCE, Rows

DISTANCE = dict(
    distance_patches='attention distance (patches)',
    distance_px='attention distance (pixels)',
)
ENTROPY = dict(entropy_nats='attention entropy (nats)')
SUMS = dict(mean_partial_sum='B', sum='|S_P|')


def group_rows(rows: Rows, *names: str) -> dict[tuple, Rows]:
    """The rows by their values in some columns, in the order of their first occurrence."""
    groups: dict[tuple, Rows] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def draw_fourier(rows: Rows, out_file: str | Path) -> None:
    """A map for each set of points (rows) and of frequencies (columns), relative to its maximum."""
    names = [name for (name,) in group_rows(rows, 'frequencies')]
    sets = [points for (points,) in group_rows(rows, 'points')]
    figure = Figure(figsize=(3 * len(names), 2.8 * len(sets)), layout='constrained')
    panels = figure.subplots(
        len(sets), len(names), sharex=True, sharey=True, squeeze=False
    )
    for (name, points), values in group_rows(rows, 'frequencies', 'points').items():
        axes = panels[sets.index(points), names.index(name)]
        largest = max(abs(row['value']) for row in values)
        scaled = [dict(row, value=row['value'] / largest) for row in values]
        image = draw_map(axes, scaled, 'value', vmin=-1, vmax=1, cmap='RdBu_r')
        marks = [part.strip('()').split(',') for part in points.split(') ')]
        axes.plot(*np.array(marks, float).T, 'ko', markersize=9, fillstyle='none')
        axes.set_title(name if points == sets[0] else '', fontsize=9)
        axes.set(
            xlabel='x (patches)' if points == sets[-1] else '', xticks=range(-4, 5, 2)
        )
        axes.set(
            ylabel='y (patches)' if name == names[0] else '', yticks=range(-4, 5, 2)
        )
    figure.colorbar(
        image,
        ax=panels,
        shrink=0.6,
        label='value over the largest; circles: the points',
    )
    figure.savefig(out_file, dpi=90, format='png')


def draw_map(axes: Axes, rows: Rows, column: str, **settings: Any) -> AxesImage:
    """A square of values, row by row; y points down, as in images."""
    reach = max(row['x'] for row in rows) + 0.5
    values = np.reshape([row[column] for row in rows], (-1, round(2 * reach)))
    return axes.imshow(values, extent=(-reach, reach, reach, -reach), **settings)


def draw_decay(rows: Rows, out_file: str | Path) -> None:
    """Sums of the sequence as curves, sums of the model as maps."""
    figure = Figure(figsize=(12, 3.6), layout='constrained')
    axes, *maps = figure.subplots(1, 3)
    for (name, pairs), sums in group_rows(rows, 'frequencies', 'pairs').items():
        if name == SEQUENCE:
            for column, label in SUMS.items():
                offsets, values = zip(
                    *((row['x'], row[column]) for row in sums), strict=True
                )
                axes.plot(offsets, values, label=f'{label}, {pairs} pairs')
            axes.set(
                xlabel='offset (tokens)', ylabel='length of the sum', ylim=(0, None)
            )
            axes.set_title(name, fontsize=9)
            axes.legend(frameon=False, fontsize=8)
            axes.grid(alpha=0.3)
            continue
        for panel, (column, label) in zip(maps, SUMS.items(), strict=True):
            image = draw_map(panel, sums, column, vmin=0)
            panel.set(xlabel='offset x (patches)', ylabel='offset y (patches)')
            panel.set_title(name, fontsize=9)
            figure.colorbar(image, ax=panel, label=f'{label}, {pairs} pairs')
    figure.savefig(out_file, dpi=90, format='png')


def draw_angles(rows: Rows, out_file: str | Path) -> None:
    """The frequencies against their index, a panel for each number of channels."""
    panels = group_rows(rows, 'channels')
    figure = Figure(figsize=(4 * len(panels), 3.2), layout='constrained')
    for axes, ((channels,), rows_of_panel) in zip(
        figure.subplots(1, len(panels)), panels.items(), strict=True
    ):
        for (name,), series in group_rows(rows_of_panel, 'frequencies').items():
            axes.semilogy(
                [row['radians'] for row in series], '.', markersize=3, label=name
            )
        exponents = np.log10(
            [row['radians'] for row in rows_of_panel if row['radians'] > 0]
        )
        decades = 10.0 ** np.array(
            [np.floor(exponents.min()), np.ceil(exponents.max())]
        )
        axes.set_ylim(*(decades * (0.9, 1.1)))  # so that two ticks at least have labels
        axes.set(xlabel='index of the frequency', ylabel='frequency (radians per unit)')
        axes.set_title(channels, fontsize=9)
        axes.legend(
            frameon=False, fontsize=8, loc='upper left', bbox_to_anchor=(0, -0.2)
        )
        axes.grid(alpha=0.3)
    figure.savefig(out_file, dpi=90, format='png')


def draw_attention(
    rows: Rows, columns: Mapping[str, str], out_file: str | Path
) -> None:
    """Draw curves over the blocks, without the last one, as in the paper.

    There is a panel for each image size and each of ``columns`` (of the rows, with the labels of
    their axes), a colour for each label.
    """
    sizes: Sequence[int] = sorted({row['size'] for row in rows})
    labels = [label for (label,) in group_rows(rows, 'label')]
    figure = Figure(
        figsize=(1.2 + 3 * len(sizes), 0.6 + 2.6 * len(columns)), layout='constrained'
    )
    panels = figure.subplots(
        len(columns), len(sizes), sharex=True, sharey='row', squeeze=False
    )
    for (size, label), curve in group_rows(rows, 'size', 'label').items():
        curve = curve[: max(1, len(curve) - 1)]
        number = labels.index(label)
        style = dict(
            color=COLOURS[number % len(COLOURS)], marker=MARKERS[number % len(MARKERS)]
        )
        for axes, column in zip(panels[:, sizes.index(size)], columns, strict=True):
            blocks, values = zip(
                *((row['block'], row[column]) for row in curve), strict=True
            )
            axes.plot(blocks, values, label=label, markersize=4, **style)
            axes.grid(alpha=0.3)
    for axes, size in zip(panels[0], sizes, strict=True):
        axes.set_title(f'{size} x {size} pixels', fontsize=9)
    for axes in panels[-1]:
        axes.set_xlabel('block')
        axes.xaxis.get_major_locator().set_params(integer=True)
    for axes, label in zip(panels[:, 0], columns.values(), strict=True):
        axes.set_ylabel(label, fontsize=9)
    panels[0, 0].legend(frameon=False, fontsize=8)
    figure.savefig(out_file, dpi=90, format='png')
