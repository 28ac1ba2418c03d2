"""Training curves from mmengine's logs, and results of a sweep over image sizes."""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

from ..measure.plot import plot_resolutions
from ..measure.results import headline, read_results
from ..project.run import Run
from ..utils.disk import read_json_lines
from . import figures
from .figures import Line
from .page import Page

PICTURES = ('losses.png', 'metrics.png', 'image_sizes.png')
LATE, GAIN = (
    0.75,
    0.05,
)  # share of the steps, and of the metric that the rest of them gained
LOWER_IS_BETTER = ('rmse',)
TIME = re.compile(
    r'^(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d) - ', re.MULTILINE
)  # of a line of a log


def read_summary(work_dir: Path) -> dict[str, str]:
    """The best figure of a training, its checkpoint, the date and the length, as far as known.

    The length is from the first to the last line of the log, of each start of the training.
    """
    run, summary = Run(work_dir), {}
    files = sorted(work_dir.glob('*/vis_data/scalars.json'))
    if record := run.record:
        step = f'epoch {record["epoch"]}, iteration {record["iteration"]}'
        summary['best'] = f'{record["metric"]} {record["value"]:.3f}, {step}'
    elif metrics := read_logs(files)[1]:
        steps, values = metrics[name := headline(metrics)]
        summary['last'] = f'{name} {values[-1]:.3f}, iteration {steps[-1]}'
    if checkpoint := str(work_dir / record['file']) if record else run.last:
        summary['checkpoint'] = checkpoint
    logs = [log for file in files for log in file.parents[1].glob('*.log')]
    texts = [log.read_text(encoding='utf-8', errors='replace') for log in logs]
    ends = [(found[0], found[-1]) for found in map(TIME.findall, texts) if found]
    times = [
        [datetime.strptime(text, '%Y/%m/%d %H:%M:%S') for text in pair] for pair in ends
    ]
    if times:
        length = sum((last - first for first, last in times), timedelta())
        summary['trained'] = f'{times[0][0]:%Y-%m-%d}, {length} h'
    return summary


def add_training(page: Page, work_dir: Path) -> None:
    """Add a summary, curves, and AP or mIoU against image size, where the work folder has them."""
    page.figures['about'] = read_summary(work_dir) | page.figures['about']
    losses, metrics = read_logs(sorted(work_dir.glob('*/vis_data/scalars.json')))
    if losses:
        page.section(
            'Training', 'Losses by iteration, and the metrics of each evaluation.'
        )
        figure = figures.draw_lines({'': losses}, 'iteration', 'loss')
        page.add_figure('losses', figure, 'Losses.', losses)
    if losses and metrics:
        figure = figures.draw_lines({'': metrics}, 'step of the evaluation', 'metric')
        page.add_figure('metrics', figure, 'Metrics.', metrics)
        if advice := advice_text(metrics):
            page.advise(advice)
    results = work_dir / 'resolutions.json'
    if results.is_file() and (content := read_results(results))['rows']:
        metric = headline(content['rows'][0]['metrics'])
        page.section(
            'Image sizes', f'{metric} against the size of the image (eval-resolutions).'
        )
        figure = plot_resolutions([content], metric)
        page.add_figure('image_sizes', figure, f'{metric} against image size.', content)


def read_logs(files: Iterable[Path]) -> tuple[dict[str, Line], dict[str, Line]]:
    """Losses and metrics by name, as lines of (step, value), from the logs of a run in order."""
    losses: dict[str, tuple[list, list]] = {}
    metrics: dict[str, tuple[list, list]] = {}
    for record in (record for file in files for record in read_json_lines(file)):
        for name, value in record.items():
            kind = losses if name == 'loss' or name.startswith('loss_') else None
            if 'loss' not in record and name not in ('step', 'time', 'data_time'):
                kind = metrics
            if kind is not None and isinstance(value, int | float) and value != -1:
                steps, values = kind.setdefault(name, ([], []))
                steps.append(record.get('step', record.get('iter', len(steps))))
                values.append(value)
    return dict(losses), dict(metrics)


def advice_text(metrics: dict[str, Line]) -> str | None:
    """Advice from the curve of the main metric; None if it had ended to improve."""
    name = headline(metrics)
    steps, values = metrics[name]
    sign = -1 if name in LOWER_IS_BETTER else 1
    before = [
        sign * v
        for step, v in zip(steps, values, strict=True)
        if step <= LATE * steps[-1]
    ]
    last = sign * values[-1]
    if (
        not before
        or last < max(sign * v for v in values)
        or last - max(before) <= GAIN * abs(last)
    ):
        return None
    word = 'falls' if sign < 0 else 'rises'
    return (
        f'{name} still {word} at the end, from {sign * max(before):.3f} to {values[-1]:.3f} in the '
        'last quarter of the run: train longer.'
    )
