"""Training curves from mmengine's logs, and results of a sweep over image sizes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from ..measure.plot import draw_resolutions
from ..measure.results import headline, read_results
from . import figures
from .page import Page

Line = tuple[list[float], list[float]]


def report(page: Page, work_dir: Path) -> None:
    """Add training curves and AP or mIoU against image size, where the work folder has them."""
    logs = sorted(work_dir.glob('*/vis_data/scalars.json'))
    losses, metrics = read_logs(path for path in logs)
    if losses:
        page.section('Training', 'Losses by iteration, and the metrics of each evaluation.')
        figure = figures.lines(losses, 'iteration', 'loss')
        page.add_figure('losses', figure, 'Losses.', losses)
        if metrics:
            figure = figures.lines(metrics, 'step of the evaluation', 'metric')
            page.add_figure('metrics', figure, 'Metrics.', metrics)
    results = work_dir / 'resolutions.json'
    if results.is_file():
        content = read_results(results)
        metric = headline(content['rows'][0]['metrics'])
        page.section('Image sizes', f'{metric} against the size of the image (eval-resolutions).')
        picture = page.out / 'image_sizes.png'
        draw_resolutions([content], metric, picture)
        page.figures['image_sizes'] = content['rows']
        page.embed('image/png', picture.read_bytes(), f'{metric} against image size.')


def read_logs(files: Iterable[Path]) -> tuple[dict[str, Line], dict[str, Line]]:
    """Losses and metrics by name, as lines of (step, value), from the logs of a run in order."""
    losses: dict[str, Line] = {}
    metrics: dict[str, Line] = {}
    for file in files:
        for text in file.read_text(encoding='utf-8').splitlines():
            record = json.loads(text)
            for name, value in record.items():
                kind = losses if name == 'loss' or name.startswith('loss_') else None
                if 'loss' not in record and name not in ('step', 'time', 'data_time'):
                    kind = metrics
                if kind is not None and isinstance(value, int | float) and value != -1:
                    steps, values = kind.setdefault(name, ([], []))
                    steps.append(record.get('step', record.get('iter', len(steps))))
                    values.append(value)
    return losses, metrics
