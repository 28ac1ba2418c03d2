"""Plots of one report, or of two side by side on one scale.

Each takes its values by the name of a run; one run needs no name: ``{'': values}``.
"""

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from ..measure.plot import open_axes, shown
from .record import Line, ScoreRange

WIDTH, HEIGHT = 5.0, 3.3  # inches; text is legible at a phone's width
MANY = 12  # lines or cells above which names and numbers would cover each other


def panels(
    runs: Mapping[str, object],
    width: float = WIDTH,
    height: float = HEIGHT,
) -> tuple[Figure, list[Axes]]:
    """A figure with axes for each run, beside each other on one scale and under their names."""
    figure = Figure(figsize=(width * min(len(runs), 2), height), layout='constrained')
    places = figure.subplots(1, len(runs), sharex=True, sharey=True, squeeze=False)[0]
    for axes, name in zip(places, runs, strict=True):
        axes.set_title(shown(name), fontsize=10)
    return figure, list(places)


def draw_bars(runs: Mapping[str, Mapping[str, float | None]], label: str) -> Figure:
    """A bar for each name, or for each name and run."""
    names = list(dict.fromkeys(chain.from_iterable(runs.values())))[::-1]
    height = 0.8 / len(runs)
    figure = Figure(figsize=(WIDTH, 0.7 + 0.26 * len(names) * len(runs) ** 0.5))
    figure.set_layout_engine('constrained')
    axes = figure.subplots()
    for index, (run, values) in enumerate(runs.items()):
        lengths = np.array([values.get(name) for name in names], float)  # NaN for None
        places = np.arange(len(names)) + ((len(runs) - 1) / 2 - index) * height
        drawn = axes.barh(places, lengths, height, label=shown(run))
        texts = ['' if np.isnan(length) else f'{length:.3f}' for length in lengths]
        axes.bar_label(drawn, texts, padding=3, fontsize=8)
    axes.set_yticks(range(len(names)), map(shown, names))
    axes.set_xlabel(shown(label))
    axes.spines[['top', 'right']].set_visible(False)
    axes.margins(x=0.12)
    if len(runs) > 1:
        figure.legend(loc='outside upper center', ncols=2, frameon=False, fontsize=8)
    return figure


def draw_lines(
    runs: Mapping[str, Mapping[str, Line]],
    across: str,
    up: str,
    unit: bool = False,
) -> Figure:
    """One line of points for each name; `unit`: both axes are from 0 to 1."""
    figure, places = panels(runs)
    for axes, values in zip(places, runs.values(), strict=True):
        for name, (x, y) in values.items():
            marker = '.' if len(x) == 1 else None
            axes.plot(x, y, label=shown(name), linewidth=1.2, marker=marker)
        axes.set(xlabel=shown(across), ylabel=shown(up))
        if unit:
            axes.set(xlim=(0, 1.01), ylim=(0, 1.01))
        open_axes(axes)
        if 1 <= len(values) <= MANY:
            axes.legend(frameon=False, fontsize=8)
    return figure


def draw_matrix(runs: Mapping[str, np.ndarray], names: Sequence[str]) -> Figure:
    """Counts as colours, by row; few classes also have their counts as text."""
    side = min(14.0, 2.5 + 0.42 * len(names))
    figure, places = panels(runs, max(WIDTH, side), max(HEIGHT, side * 0.9))
    names = list(map(shown, names))
    for axes, table in zip(places, runs.values(), strict=True):
        shares = table / np.maximum(table.sum(1, keepdims=True), 1)
        axes.imshow(shares, cmap='Blues', vmin=0, vmax=1)
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=8)
        axes.set_yticks(range(len(names)), names, fontsize=8)
        axes.set(xlabel='predicted', ylabel='truth')
        if len(names) > MANY + 1:
            continue
        for row, column in np.argwhere(table):
            number = table[row, column]
            axes.text(
                column,
                row,
                f'{number:.3g}' if table.max() > 9999 else number,
                ha='center',
                va='center',
                fontsize=8,
                color='white' if shares[row, column] > 0.5 else 'black',
            )
    return figure


def draw_calibration(runs: Mapping[str, Sequence[ScoreRange]]) -> Figure:
    """Fraction of right predictions against the score, over the number of predictions."""
    figure = Figure(figsize=(WIDTH * min(len(runs), 2), HEIGHT), layout='constrained')
    places = figure.subplots(
        2,
        len(runs),
        sharex=True,
        sharey='row',
        squeeze=False,
        height_ratios=(3, 1),
    )
    for upper, lower, (name, ranges) in zip(*places, runs.items(), strict=True):
        scores = [x['score'] for x in ranges]
        upper.plot([0, 1], [0, 1], color='gray', linestyle='--', linewidth=1)
        upper.bar(scores, [x['right'] for x in ranges], width=0.07)
        upper.set(ylabel='fraction right', xlim=(0, 1), ylim=(0, 1))
        upper.set_title(shown(name), fontsize=10)
        lower.bar(scores, [x['number'] for x in ranges], width=0.07, color='gray')
        lower.set(xlabel='score', ylabel='number', yscale='log')
        lower.set_ylim(bottom=0.5)  # so that there is a power of ten to name
        lower.yaxis.set_minor_formatter(NullFormatter())
    return figure


def draw_grid(pictures: Sequence[tuple[np.ndarray, str]], columns: int = 6) -> Figure:
    """Small pictures (RGB) with their titles, which may have several lines."""
    rows = -(-len(pictures) // columns)
    figure = Figure(figsize=(WIDTH * 1.2, rows * 1.6), layout='constrained')
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in places:
        axes.axis('off')
    for axes, (picture, title) in zip(places, pictures, strict=False):
        axes.imshow(picture)
        axes.set_title('\n'.join(map(shown, title.splitlines())), fontsize=7)
    return figure
