"""Plots of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

WIDTH, HEIGHT = 5.0, 3.3  # inches; text is legible at a phone's width
MANY = 12  # lines or cells above which names and numbers would cover each other


def bars(values: Mapping[str, float], label: str) -> Figure:
    """One bar for each name."""
    figure = Figure(figsize=(WIDTH, HEIGHT * min(1.0, 0.3 + 0.08 * len(values))))
    figure.set_layout_engine('constrained')
    axes = figure.subplots()
    drawn = axes.barh(list(values)[::-1], list(values.values())[::-1])
    axes.bar_label(drawn, fmt='%.3f', padding=3)
    axes.set_xlabel(label)
    axes.spines[['top', 'right']].set_visible(False)
    axes.margins(x=0.12)
    return figure


def lines(
    values: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    across: str,
    up: str,
    unit: bool = False,
) -> Figure:
    """One line of points (x, y) for each name; `unit`: both axes are from 0 to 1."""
    figure = Figure(figsize=(WIDTH, HEIGHT), layout='constrained')
    axes = figure.subplots()
    for name, (x, y) in values.items():
        axes.plot(x, y, label=name, linewidth=1.2)
    axes.set(xlabel=across, ylabel=up)
    if unit:
        axes.set(xlim=(0, 1.01), ylim=(0, 1.01))
    axes.grid(alpha=0.3)
    axes.spines[['top', 'right']].set_visible(False)
    if 1 <= len(values) <= MANY:
        axes.legend(frameon=False, fontsize=8)
    return figure


def matrix(table: np.ndarray, names: Sequence[str]) -> Figure:
    """Counts as colours, by row; few classes also have their counts as text."""
    side = min(14.0, 2.5 + 0.42 * len(names))
    figure = Figure(figsize=(max(WIDTH, side), max(HEIGHT, side * 0.9)), layout='constrained')
    axes = figure.subplots()
    shares = table / np.maximum(table.sum(1, keepdims=True), 1)
    axes.imshow(shares, cmap='Blues', vmin=0, vmax=1)
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set(xlabel='predicted', ylabel='truth')
    if len(names) <= MANY + 1:
        for row, column in np.argwhere(table):
            shade = 'white' if shares[row, column] > 0.5 else 'black'
            text = f'{table[row, column]:.3g}' if table.max() > 9999 else table[row, column]
            axes.text(column, row, text, ha='center', va='center', fontsize=8, color=shade)
    return figure


def calibration(rows: Sequence[Mapping[str, float]]) -> Figure:
    """Share of right predictions against the score, over the number of predictions."""
    figure = Figure(figsize=(WIDTH, HEIGHT), layout='constrained')
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    scores = [row['score'] for row in rows]
    upper.plot([0, 1], [0, 1], color='gray', linestyle='--', linewidth=1)
    upper.bar(scores, [row['right'] for row in rows], width=0.07)
    upper.set(ylabel='share right', xlim=(0, 1), ylim=(0, 1))
    lower.bar(scores, [row['number'] for row in rows], width=0.07, color='gray')
    lower.set(xlabel='score', ylabel='number', yscale='log')
    return figure


def grid(pictures: Sequence[tuple[np.ndarray, str]], columns: int = 6) -> Figure:
    """Small pictures (RGB) with their titles."""
    rows = -(-len(pictures) // columns)
    figure = Figure(figsize=(WIDTH * 1.2, rows * 1.6), layout='constrained')
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in places:
        axes.axis('off')
    for axes, (picture, title) in zip(places, pictures, strict=False):
        axes.imshow(picture)
        axes.set_title(title, fontsize=7)
    return figure
