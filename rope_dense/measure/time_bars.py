"""Times of a model by kind of operation, as stacked bars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

COLOURS = {
    'rotation': '#e76f51',
    'windows': '#9c6644',
    'attention': '#269db2',
    'deformable attention': '#8ecbd6',
    'linear': '#264653',
    'convolution': '#6d8f76',
    'norm': '#e9c46a',
    'activation': '#f4a261',
    'rest': '#c9c9c9',
}


def draw_time_bars(rows: Sequence[dict], out_file: str | Path, *, title: str) -> None:
    """Draw one bar for each size and mode: the median time, divided by kind of operation.

    Args:
        rows: with mode, height, width, median_ms, memory_mb and share, see
            ``speed.measure_speed``.
    """
    figure = Figure(figsize=(8, 1.6 + 0.45 * len(rows)), layout='constrained')
    axes = figure.subplots()
    names = [f'{row["height"]} x {row["width"]}\n{row["mode"]}' for row in rows]
    ends = [0.0] * len(rows)
    for kind, colour in COLOURS.items():
        parts = [row['median_ms'] * row['share'][kind] for row in rows]
        axes.barh(names, parts, left=ends, color=colour, label=kind, height=0.7)
        ends = [end + part for end, part in zip(ends, parts, strict=True)]
    for position, (row, end) in enumerate(zip(rows, ends, strict=True)):
        shares = (f'{kind} {100 * row["share"][kind]:.1f} %' for kind in ('rotation', 'attention'))
        text = f' {end:.0f} ms, {row["memory_mb"]:.0f} MB, {", ".join(shares)}'
        axes.text(end, position, text, va='center', fontsize=8)
    axes.set(xlabel='ms for a batch (median)', xlim=(0, 1.8 * max(ends)))
    axes.set_title(title, fontsize=10, loc='left')
    axes.invert_yaxis()
    axes.spines[['top', 'right']].set_visible(False)
    axes.tick_params(axis='y', labelsize=8)
    axes.legend(frameon=False, fontsize=8, ncols=4, loc='upper left', bbox_to_anchor=(0, -0.25))
    figure.savefig(out_file, dpi=150, format='png')
