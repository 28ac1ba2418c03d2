"""Training curves from mmengine's logs, and results of a sweep over image sizes."""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path

from ..engine.figure_source import FigureSource
from ..measure.plot import plot_resolutions
from ..measure.results import headline, read_results
from ..project.run import Run
from ..utils.disk import read_json_lines
from . import figures
from .page import ReportPage
from .record import Line

PICTURES = ('losses.png', 'metrics.png', 'image_sizes.png')
LATE = 0.75  # share of the steps, of which the rest is the end of a run
GAIN = 0.05  # share of the metric that the end has gained, if it still improves
LOWER_IS_BETTER = ('rmse',)
# What is in a line of a test's log, too.
NO_METRICS = ('step', 'time', 'data_time')
FORMAT = '%Y/%m/%d %H:%M:%S'
# Of a line of a log.
TIME = re.compile(r'^(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d) - ', re.MULTILINE)


def read_summary(work_dir: Path) -> dict[str, str]:
    """The best figure of a training, its checkpoint, the date and the length, as far as known.

    The length is from the first to the last line of the log, of each start of the training.
    """
    run = Run(work_dir)
    summary = {}
    files = sorted(work_dir.glob('*/vis_data/scalars.json'))
    record = run.record
    metrics = {} if record else read_logs(files)[1]
    if record:
        step = f'epoch {record["epoch"]}, iteration {record["iteration"]}'
        summary['best'] = f'{record["metric"]} {record["value"]:.3f}, {step}'
        if 'source' in record:  # not of an earlier version
            summary['best'] += f' ({FigureSource(**record["source"])})'
    elif metrics:
        name = headline(metrics)
        steps, values = metrics[name]
        summary['last'] = f'{name} {values[-1]:.3f}, iteration {steps[-1]}'
    checkpoint = str(work_dir / record['file']) if record else run.last
    if checkpoint:
        summary['checkpoint'] = checkpoint
    days = []
    length = timedelta()
    for file in files:
        for log in file.parents[1].glob('*.log'):
            times = TIME.findall(log.read_text(encoding='utf-8', errors='replace'))
            if times:
                first = datetime.strptime(times[0], FORMAT)
                last = datetime.strptime(times[-1], FORMAT)
                days.append(f'{first:%Y-%m-%d}')
                length += last - first
    if days:
        summary['trained'] = f'{days[0]}, {length} h'
    return summary


def add_training(page: ReportPage, work_dir: Path) -> None:
    """Add a summary, curves, and AP or mIoU against image size, where the work folder has them."""
    page.record.about = read_summary(work_dir) | page.record.about
    losses, metrics = read_logs(sorted(work_dir.glob('*/vis_data/scalars.json')))
    if losses:
        page.record.losses = losses
        text = 'Losses by iteration, and the metrics of each evaluation.'
        page.section('Training', text)
        figure = figures.draw_lines({'': losses}, 'iteration', 'loss')
        page.add_figure('losses', figure, 'Losses.')
    if losses and metrics:
        page.record.metrics = metrics
        figure = figures.draw_lines({'': metrics}, 'step of the evaluation', 'metric')
        page.add_figure('metrics', figure, 'Metrics.')
        advice = advice_text(metrics)
        if advice:
            page.advise(advice)
    results = work_dir / 'resolutions.json'
    content = read_results(results) if results.is_file() else None
    if content and content['rows']:
        page.record.image_sizes = content
        metric = headline(content['rows'][0]['metrics'])
        text = f'{metric} against the size of the image (eval-resolutions).'
        page.section('Image sizes', text)
        figure = plot_resolutions([content], metric)
        page.add_figure('image_sizes', figure, f'{metric} against image size.')


def read_logs(files: Iterable[Path]) -> tuple[dict[str, Line], dict[str, Line]]:
    """Losses and metrics by name, as lines of (step, value), from the logs of a run in order."""
    losses: dict[str, Line] = {}
    metrics: dict[str, Line] = {}
    for record in chain.from_iterable(map(read_json_lines, files)):
        for name, value in record.items():
            if 'loss' not in record and name not in NO_METRICS:
                lines = metrics
            elif name == 'loss' or name.startswith('loss_'):
                lines = losses
            else:
                continue
            if isinstance(value, int | float) and value != -1:
                steps, values = lines.setdefault(name, ([], []))
                steps.append(record.get('step', record.get('iter', len(steps))))
                values.append(value)
    return losses, metrics


def advice_text(metrics: dict[str, Line]) -> str | None:
    """Advice from the curve of the main metric; None if it had ended to improve."""
    name = headline(metrics)
    steps, values = metrics[name]
    word, best = ('falls', min) if name in LOWER_IS_BETTER else ('rises', max)
    late = steps[-1] * LATE
    before = [x for step, x in zip(steps, values, strict=True) if step <= late]
    last = values[-1]
    if not before or last != best(values):
        return None
    first = best(before)
    if abs(last - first) <= GAIN * abs(last):
        return None
    return (
        f'{name} still {word} at the end, from {first:.3f} to {last:.3f} in the '
        'last quarter of the run: train longer.'
    )
