"""The report of a panoptic model, by the figures of mmdet's metric. K classes, things first."""

import copy
import io
from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import partial
from typing import Any

import numpy as np
from mmdet.visualization import DetLocalVisualizer
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import METRICS

from ..datasets.images.drawing import draw
from ..project.building import build_part
from ..project.errors import UsageError
from ..project.model import num_things
from ..project.parts import evaluators
from . import figures
from .page import Page
from .predictions import ReadPicture, build_loader, picture_reader, predict_samples
from .ranked import Image, Ranked, side_by_side


def add_panoptic(page: Page, cfg: Config, model: BaseModel) -> None:
    """Add all sections on segments; UsageError if the config does not test them by COCO's PQ."""
    loader, ranked, counts = build_loader(cfg), Ranked(), list[np.ndarray]()
    dataset: Any = loader.dataset
    key, node = evaluators(cfg, 'test_evaluator')[0]
    if not node.type.endswith('CocoPanopticMetric'):
        raise UsageError(f'report: {key} is {node.type}; give CocoPanopticMetric')
    with redirect_stdout(io.StringIO()):  # what pycocotools prints
        metric = build_part(cfg, key, METRICS, node, outfile_prefix=None, format_only=False)
    metric.dataset_meta = dataset.metainfo
    for sample in predict_samples(model, loader):
        metric.process({}, [copy.deepcopy(sample).to_dict()])  # and changes its labels
        classes = dataset.cat_ids if metric.categories else range(len(dataset.cat_ids))
        found = [metric.results[-1][number] for number in classes]
        counts.append(np.array([[x.iou, x.tp, x.fp, x.fn] for x in found]))
        if counts[-1].any():
            row = dict(path=sample.img_path, PQ=quality_row('', counts[-1])['PQ'])
            ranked.add(row['PQ'], row, sample)
    page.figures['about'] |= dict(images=len(counts))
    add_classes(page, np.sum(counts, 0), model.dataset_meta['classes'], num_things(cfg))
    visualizer = DetLocalVisualizer(name='report')
    visualizer.dataset_meta = model.dataset_meta
    ranked.add_to(
        page,
        'Truth on the left, prediction on the right.',
        partial(draw_both_segments, visualizer, picture_reader(cfg)),
        lambda row: f'PQ {row["PQ"]:.3f}',
    )


def quality_row(name: str, counts: np.ndarray) -> dict[str, Any]:
    """The mean qualities of the classes that have segments, true or predicted; NaN for none.

    Args:
        counts: of each class the sum of the IoUs of matched segments, TP, FP and FN.
    """
    ious, true, false, missed = counts[counts.any(1)].T
    number = true + (false + missed) / 2
    qualities = dict(PQ=ious / number, SQ=ious / np.maximum(true, 1), RQ=true / number)
    row = {key: float(x.mean()) if x.size else np.nan for key, x in qualities.items()}
    sums = dict(TP=int(true.sum()), FP=int(false.sum()), FN=int(missed.sum()))
    return {'class': name, **row, **sums}


def add_classes(page: Page, counts: np.ndarray, classes: Sequence[str], things: int) -> None:
    """Add the qualities of all classes, of things, of stuff, and of each class."""
    page.section(
        'Classes',
        'PQ is SQ times RQ: the mean IoU of the matched segments (of IoU above 0.5), and the F1 of '
        'finding segments. TP, FP and FN: segments that are matched, false, and missed. Low RQ: '
        'segments are not found, or in parts; low SQ: their masks are coarse.',
    )
    rows = [quality_row(name, counts[[label]]) for label, name in enumerate(classes)]
    lengths = {row['class']: row['PQ'] for row in rows}
    page.add_figure('pq', figures.draw_bars({'': lengths}, 'PQ'), 'PQ by class.')
    parts = dict(all=counts, things=counts[:things], stuff=counts[things:])
    means = [quality_row(name, part) for name, part in parts.items()]
    page.add_table('classes', means + rows)


def draw_both_segments(
    visualizer: DetLocalVisualizer, read: ReadPicture, image: Image
) -> np.ndarray:
    """An image with its true segments, beside itself with the predicted ones (BGR)."""
    picture = read(image.row['path'], None)[..., ::-1]
    truth = draw(visualizer, 'report', picture, image.content, draw_gt=True, draw_pred=False)
    return side_by_side(truth, draw(visualizer, 'report', picture, image.content))
