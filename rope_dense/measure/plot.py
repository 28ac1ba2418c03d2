"""A metric against the resolution, one line for each run and setting."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..data.labels.objects import printable_text
from .results import SETTINGS, ResultFile, source_text

COLOURS = (
    '#269db2', '#e76f51', '#54699a', '#f4b942', '#58ab60', '#be5cb8', '#7a5c46', '#777777',
)  # fmt: skip
STYLES = ('-', '--', ':', '-.')
MARKERS = 'osD^vPX*'
LONGEST = 40  # characters of a name; longer ones would leave no room for the plot


class Curve(NamedTuple):
    """The figures of a setting of a run, by the size of the images.

    Attributes:
        run: its index.
        number: of the setting within the run.
        setting: the values of ``SETTINGS``.
        points: (shorter side, metric), by side.
    """

    run: int
    number: int
    setting: Mapping[str, Any]
    points: Sequence[tuple[int, float]]


def draw_resolutions(
    runs: Sequence[ResultFile],
    metric: str,
    out_file: str | Path,
    baseline: str | None = None,
) -> None:
    """Write a plot of ``plot_resolutions`` to a file. ValueError: see there."""
    plot_resolutions(runs, metric, baseline).savefig(out_file, dpi=150)


def plot_resolutions(
    runs: Sequence[ResultFile],
    metric: str,
    baseline: str | None = None,
) -> Figure:
    """A metric against the shorter side of the images, the training sizes marked.

    Lines of one run have one colour; its settings differ in marker and dashes.

    Args:
        runs: contents of results files: label, training_size, rows. A setting of None is not named.
        metric: a key of the rows' metrics.
        baseline: name of the run that the metric is a difference to, a line at 0; or None.

    Raises:
        ValueError: a run does not have the metric.
    """
    figure = Figure(figsize=(7, 4.2), layout='constrained')
    axes = figure.subplots()
    curves = curves_of(runs, metric)
    varied = []
    for name in SETTINGS:
        values = {curve.setting[name] for curve in curves}
        if len(values - {None}) > 1:
            varied.append(name)
    several = len(runs) > 1
    sides = set[int]()
    for curve in curves:
        names = [runs[curve.run]['label']] if several or not varied else []
        for name in varied:
            if curve.setting[name] is not None:
                names.append(f'{name} {curve.setting[name]}')
        sides.update(side for side, _ in curve.points)
        colour = curve.run if several else curve.number
        axes.plot(
            *zip(*curve.points, strict=True),
            color=COLOURS[colour % len(COLOURS)],
            linestyle=STYLES[curve.number % len(STYLES)] if several else '-',
            marker=MARKERS[curve.number % len(MARKERS)],
            markersize=4,
            # In the plot, not beside it.
            label=shown(', '.join(names), 3 * LONGEST),
        )
    for side in sorted({min(run['training_size']) for run in runs}):
        axes.axvline(side, color='gray', linestyle=(0, (1, 2)), linewidth=1)
        axes.annotate(
            f'training {side}',
            (side, 1),  # above the lines
            xycoords=('data', 'axes fraction'),
            color='gray',
            fontsize=8,
            ha='center',
            va='bottom',
        )
    axes.set(xlabel='shorter side of the image in pixels', ylabel=shown(metric))
    if baseline is not None:
        axes.set_ylabel(f'{shown(metric)}, difference to\n{shown(baseline)}')
        axes.axhline(0, color='gray', linewidth=1)
    axes.set_xticks(sorted(sides))
    axes.tick_params(axis='x', rotation=45)
    open_axes(axes)
    axes.legend(frameon=False, fontsize=8)
    last = [source_text(run['rows'][-1]) for run in runs]
    figure.supxlabel('\n'.join(dict.fromkeys(last)), fontsize=6)
    return figure


def open_axes(axes: Axes, grid: Literal['both', 'x'] = 'both') -> None:
    """Draw a light grid, and no frame above and at the right."""
    axes.grid(alpha=0.3, axis=grid)
    axes.spines[['top', 'right']].set_visible(False)


def shown(name: str, longest: int = LONGEST) -> str:
    """A name for matplotlib, which shows it as it is: no formula, on one line and not too long."""
    text = printable_text(' '.join(name.split()))
    if len(text) > longest:
        text = f'{text[: longest - 1]}…'
    return text.replace('$', r'\$')


def curves_of(runs: Sequence[ResultFile], metric: str) -> list[Curve]:
    """The curve of each run and setting, without undefined figures.

    ValueError for a run without the metric.
    """
    curves = []
    for index, run in enumerate(runs):
        known = set[str]()
        by_setting = dict[tuple, list[tuple[int, float]]]()
        for row in run['rows']:
            known |= row['metrics'].keys()
            setting: dict[str, Any] = {name: row.get(name) for name in SETTINGS}
            setting['scaling'] = row.get('given') or row['scaling']
            points = by_setting.setdefault(tuple(setting.items()), [])
            value = row['metrics'].get(metric)
            if value is not None:
                points.append((min(row['height'], row['width']), value))
        if metric not in known:
            raise ValueError(
                f'{run["label"]} has no metric {metric!r}, it has {", ".join(sorted(known))}'
            )
        for number, (named, points) in enumerate(by_setting.items()):
            if points:
                curves.append(Curve(index, number, dict(named), sorted(points)))
    return curves
