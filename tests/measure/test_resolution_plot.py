"""The plot of a sweep: which lines it has, and that several runs share it."""

import sys
from pathlib import Path

import pytest

from rope_dense.measure.plot import (
    LONGEST,
    curves_of,
    draw_resolutions,
    plot_resolutions,
    shown,
)


def results(label: str, *settings: str) -> dict:
    rows = []
    for scaling in settings:
        for side, value in ((128, 2.0), (64, 1.0), (96, None)):
            row = dict(
                size=str(side),
                height=side,
                width=2 * side,
                scaling=scaling,
            )
            rows.append(
                row
                | dict(
                    window='7',
                    slide='keep',
                    metrics=dict(mIoU=value),
                )
            )
    return dict(
        label=label,
        training_size=(64, 64),
        rows=rows,
    )


def test_lines_run_from_small_to_large() -> None:
    lines = curves_of([results('ape', 'none'), results('mixed', 'none', 'ntk')], 'mIoU')
    found = [(line.run, line.setting['scaling'], line.points) for line in lines]
    points = [(64, 1.0), (128, 2.0)]
    assert found == [(0, 'none', points), (1, 'none', points), (1, 'ntk', points)]
    with pytest.raises(ValueError, match="ape has no metric 'AP', it has mIoU"):
        curves_of([results('ape', 'none')], 'AP')


def test_runs_are_drawn_over_each_other(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = []
    axes = sys.modules['matplotlib.axes'].Axes
    monkeypatch.setattr(axes, 'legend', lambda self, **options: drawn.append(self))
    runs = [results('ape', 'none'), results('mixed', 'none', 'ntk')]
    draw_resolutions(runs, 'mIoU', tmp_path / 'plot.png')
    (plot,) = drawn
    *curves, mark = plot.lines
    labels = ['ape, scaling none', 'mixed, scaling none', 'mixed, scaling ntk']
    assert [curve.get_label() for curve in curves] == labels
    assert [list(curve.get_xdata()) for curve in curves] == [[64, 128]] * 3
    assert list(mark.get_xdata()) == [64, 64]  # the training size
    assert plot.get_ylabel() == 'mIoU'
    assert (tmp_path / 'plot.png').exists()
    for row in runs[0]['rows']:
        row['scaling'] = None  # as those of a paper
    draw_resolutions(runs, 'mIoU', tmp_path / 'plot.png', baseline='ape')
    assert [curve.get_label() for curve in drawn[-1].lines[:3]] == ['ape', *labels[1:]]
    *_, zero = drawn[-1].lines
    assert list(zero.get_ydata()) == [0, 0]
    assert drawn[-1].get_ylabel() == 'mIoU, difference to\nape'


@pytest.mark.parametrize(
    'name, expected',
    [
        ('US$1-US$5', r'US\$1-US\$5'),
        ('two\nlines\tand more', 'two lines and more'),
        ('bad \udcff\x07name', 'bad name'),
        ('x' * 500, 'x' * (LONGEST - 1) + '…'),
    ],
)
def test_names_are_shown_as_they_are(name: str, expected: str) -> None:
    assert shown(name) == expected


def test_names_of_runs_and_metrics_are_no_formulas(tmp_path: Path) -> None:
    runs = [results('$x^$', 'none'), results('US$1-US$5', 'none')]
    for run in runs:
        for row in run['rows']:
            row['metrics'] = {'IoU.$y_$': 1.0}
    draw_resolutions(runs, 'IoU.$y_$', tmp_path / 'plot.png', baseline='$x^$')
    (axes,) = plot_resolutions(runs, 'IoU.$y_$').axes
    first, second = axes.get_legend().get_texts()
    assert first.get_text() == r'\$x^\$'
    assert second.get_text() == r'US\$1-US\$5'
