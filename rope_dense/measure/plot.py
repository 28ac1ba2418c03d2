"""A metric against the resolution, one line for each run and setting."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from ..data.labels.objects import printable_text

COLOURS = (
    '#269db2',
    '#e76f51',
    '#54699a',
    '#f4b942',
    '#58ab60',
    '#be5cb8',
    '#7a5c46',
    '#777777',
)
STYLES = ('-', '--', ':', '-.')
MARKERS = 'osD^vPX*'
SETTINGS = ('scaling', 'window', 'slide', 'tile')
LONGEST = 40  # characters of a name; longer ones would leave no room for the plot


def draw_resolutions(
    runs: Sequence[dict], metric: str, out_file: str | Path, baseline: str | None = None
) -> None:
    """Write a plot of ``plot_resolutions`` to a file. ValueError: see there."""
    plot_resolutions(runs, metric, baseline).savefig(out_file, dpi=150)


def plot_resolutions(
    runs: Sequence[dict], metric: str, baseline: str | None = None
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
    lines = curves_of(runs, metric)
    values = {
        name: {dict(line['setting'])[name] for line in lines} - {None}
        for name in SETTINGS
    }
    varied = [name for name in SETTINGS if len(values[name]) > 1]
    several = len(runs) > 1
    for line in lines:
        number = line['run'] if several else line['number']
        parts = [runs[line['run']]['label']] if several or not varied else []
        setting = dict(line['setting'])
        parts += [
            f'{name} {setting[name]}' for name in varied if setting[name] is not None
        ]
        axes.plot(
            *zip(*line['points'], strict=True),
            color=COLOURS[number % len(COLOURS)],
            linestyle=STYLES[(line['number'] if several else 0) % len(STYLES)],
            marker=MARKERS[line['number'] % len(MARKERS)],
            markersize=4,
            label=shown(', '.join(parts), 3 * LONGEST),  # in the plot, not beside it
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
    axes.set_xticks(sorted({x for line in lines for x, _ in line['points']}))
    axes.tick_params(axis='x', rotation=45)
    axes.spines[['top', 'right']].set_visible(False)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
    return figure


def shown(name: str, longest: int = LONGEST) -> str:
    """A name for matplotlib, which shows it as it is: no formula, on one line and not too long."""
    text = printable_text(' '.join(name.split()))
    if len(text) > longest:
        text = f'{text[: longest - 1]}…'
    return text.replace('$', r'\$')


def curves_of(runs: Sequence[dict], metric: str) -> list[dict]:
    """The points (shorter side, metric) of each run and setting, by side, without undefined ones.

    Returns:
        Dicts of run (its index), number (of the setting within the run), setting, points.
    """
    lines = []
    for index, run in enumerate(runs):
        if not any(metric in row['metrics'] for row in run['rows']):
            known = sorted({name for row in run['rows'] for name in row['metrics']})
            raise ValueError(
                f'{run["label"]} has no metric {metric!r}, it has {", ".join(known)}'
            )
        rows = [
            dict(row, scaling=row.get('given') or row['scaling'], tile=row.get('tile'))
            for row in run['rows']
        ]
        settings = dict.fromkeys(tuple((n, row[n]) for n in SETTINGS) for row in rows)
        for number, setting in enumerate(settings):
            points = sorted(
                (min(row['height'], row['width']), row['metrics'][metric])
                for row in rows
                if dict(setting).items() <= row.items()
                and row['metrics'].get(metric) is not None
            )
            if points:
                lines.append(
                    dict(run=index, number=number, setting=setting, points=points)
                )
    return lines
