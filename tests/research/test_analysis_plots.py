"""The figures of the analyses: what is drawn, in which units."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from research import BlockStatistics, plots, tables

Drawn = Callable[..., Figure]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Drawn:
    """The figure that a function draws and writes."""
    figures, save = [], Figure.savefig

    def savefig(figure: Figure, *args: object, **kwargs: object) -> None:
        figures.append(figure)
        save(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, 'savefig', savefig)

    def draw(function: Callable[..., None], *args: object) -> Figure:
        function(*args, tmp_path / 'figure.png')
        assert 1000 < (tmp_path / 'figure.png').stat().st_size < 2e5
        return figures[-1]

    return draw


def labels(figure: Figure) -> set[str]:
    return {
        text
        for axes in figure.axes
        for text in (axes.get_xlabel(), axes.get_ylabel())
        if text
    }


def test_fourier(drawn: Drawn) -> None:
    """A picture has y downwards, and the value of a row of the table in its place."""
    rows = tables.fourier_rows('mine', torch.randn(2, 8))
    figure = drawn(plots.draw_fourier, rows)
    assert {'x (patches)', 'y (patches)'} <= labels(figure)
    titles = [axes.get_title() for axes in figure.axes[:3]]
    assert titles == ['mine', 'axial, D = 64, theta = 100', 'axial + cross, D = 64']
    (image,) = figure.axes[0].images
    of_panel = [
        row
        for row in rows
        if row['frequencies'] == 'mine' and row['points'] == '(1, 1)'
    ]
    largest = max(abs(row['value']) for row in of_panel)
    assert image.get_array()[7, 1] == pytest.approx(
        of_panel[7 * 11 + 1]['value'] / largest
    )
    assert (of_panel[7 * 11 + 1]['x'], of_panel[7 * 11 + 1]['y']) == (-4, 2)
    assert list(image.get_extent()) == [-5.5, 5.5, 5.5, -5.5]
    (marks,) = figure.axes[6].lines  # of the last set of points
    assert np.array_equal(marks.get_xydata(), [[3, 3], [-2, 2]])


def test_decay(drawn: Drawn) -> None:
    figure = drawn(plots.draw_decay, tables.decay_rows('mine', torch.randn(2, 8)))
    assert {
        'offset (tokens)',
        'offset x (patches)',
        'B, 8 pairs',
        '|S_P|, 8 pairs',
    } <= labels(figure)
    mean, last = figure.axes[0].lines
    assert mean.get_ydata()[0] == 32.5 and last.get_ydata()[0] == 64
    middle = [axes.images[0].get_array()[16, 16] for axes in figure.axes[1:3]]
    assert middle == [pytest.approx(4.5), pytest.approx(8)]  # (P + 1) / 2 and P


def test_angles(drawn: Drawn) -> None:
    figure = drawn(plots.draw_angles, tables.angle_rows('mine', torch.randn(2, 2, 4)))
    assert labels(figure) == {'index of the frequency', 'frequency (radians per unit)'}
    assert [axes.get_title() for axes in figure.axes] == [
        '256 channels',
        '512 channels',
        '16 rotated channels',
    ]
    for axes in figure.axes:
        low, high = axes.get_ylim()
        ticks = [
            tick for tick in axes.yaxis.get_major_locator()() if low <= tick <= high
        ]
        assert len(ticks) >= 2
        assert all(low < y < high for line in axes.lines for y in line.get_ydata())
    assert [len(line.get_ydata()) for axes in figure.axes for line in axes.lines] == [
        64,
        64,
        128,
        128,
        8,
    ]


def test_attention(drawn: Drawn) -> None:
    """Two models at two sizes; the last block is in the table, not in the figure."""
    rows = []
    for label, factor in dict(ape=1.0, mixed=2.0).items():
        for size in (64, 128):
            blocks = [
                BlockStatistics(i, 16, factor * i + size / 64, 2.0) for i in range(3)
            ]
            rows += tables.attention_rows(label, 10, size, blocks)
    assert len(rows) == 12
    assert rows[4]['distance_patches'] == 3 and rows[4]['distance_px'] == 48
    figure = drawn(plots.draw_attention, rows, plots.DISTANCE)
    expected = {'block', 'attention distance (patches)', 'attention distance (pixels)'}
    assert labels(figure) == expected
    first, second = figure.axes[0].lines
    assert [line.get_label() for line in (first, second)] == ['ape', 'mixed']
    assert np.array_equal(second.get_xydata(), [[0, 1], [1, 3]])
    assert np.array_equal(figure.axes[3].lines[0].get_xydata(), [[0, 32], [1, 48]])
    figure = drawn(plots.draw_attention, rows, plots.ENTROPY)
    assert labels(figure) == {'block', 'attention entropy (nats)'}
