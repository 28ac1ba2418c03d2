"""The report of a segmentor.

The report of a panoptic model, by the figures of mmdet's metric. K classes, things first.
"""

import copy
import io
from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import partial
from typing import Any

import cv2
import numpy as np
import torch
from mmdet.visualization import DetLocalVisualizer
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import METRICS
from mmengine.structures import PixelData
from mmseg.structures import SegDataSample
from mmseg.visualization import SegLocalVisualizer

from ..data.images.drawing import draw
from ..project.building import build_part
from ..project.contents import evaluators
from ..project.model import num_things
from ..utils.errors import UsageError
from . import figures
from .page import Page
from .predictions import (
    Image,
    Ranked,
    ReadPicture,
    build_loader,
    picture_reader,
    predict_samples,
    side_by_side,
)

Colour = tuple[int, int, int]
BORDER = 0.0075  # half the width of a boundary, as a fraction of the diagonal


def add_segmentation(page: Page, cfg: Config, model: BaseModel) -> None:
    """Add all sections on labels of pixels; UsageError if data or predictions have none."""
    classes, colours = model.dataset_meta['classes'], model.dataset_meta['palette']
    tables = np.zeros((2, len(classes), len(classes)), int)  # interior, boundary
    images, ranked = 0, Ranked()
    for sample in predict_samples(model, build_loader(cfg)):
        if 'gt_sem_seg' not in sample or 'pred_sem_seg' not in sample:
            raise UsageError(
                'report: needs predicted labels of pixels and a truth to compare with'
            )
        truth = sample.gt_sem_seg.data[0].numpy().astype(np.uint16)
        predicted = sample.pred_sem_seg.data[0].numpy().astype(np.uint16)
        near = boundary(truth)
        pair = np.stack(
            [count_pixels(truth[x], predicted[x], len(classes)) for x in (~near, near)]
        )
        tables += pair
        images += 1
        if pair.any():
            mean = float(np.nanmean(ious(pair.sum(0))))
            tile = sample.metainfo.get('place')
            start = [*tile.start] if tile else [0, 0]
            row = dict(path=sample.img_path, mIoU=mean, place=start)
            ranked.add(mean, row, (truth, predicted))
    page.figures['about'] |= dict(images=images)
    add_classes(page, tables, classes)
    table = tables.sum(0)
    page.section('Confusion', 'Pixels by true and predicted class.')
    page.add_figure(
        'confusion', figures.draw_matrix({'': table}, classes), 'Rows: truth.', table
    )
    add_pictures(page, ranked, classes, colours, picture_reader(cfg))


def count_pixels(
    truth: np.ndarray, predicted: np.ndarray, num_classes: int
) -> np.ndarray:
    """Pixels [truth, predicted]; labels that are no class in the truth are not counted."""
    known = truth < num_classes
    pairs = truth[known].astype(int) * num_classes + predicted[known]
    return np.bincount(pairs, minlength=num_classes**2).reshape(
        num_classes, num_classes
    )


def ious(table: np.ndarray) -> np.ndarray:
    """IoU of each class; NaN for a class that is neither true nor predicted."""
    both = np.diag(table)
    union = table.sum(0) + table.sum(1) - both
    return np.where(union > 0, both / np.maximum(union, 1), np.nan)


def boundary(labels: np.ndarray) -> np.ndarray:
    """True for pixels near a pixel of another label."""
    width = max(1, round(BORDER * float(np.hypot(*labels.shape))))
    kernel = np.ones((2 * width + 1, 2 * width + 1), np.uint8)
    return cv2.dilate(labels, kernel) != cv2.erode(labels, kernel)


def add_classes(page: Page, tables: np.ndarray, classes: Sequence[str]) -> None:
    """Add IoU and accuracy by class, and IoU on boundaries and inside."""
    page.section(
        'Classes',
        'IoU of all pixels, of pixels near a boundary of the truth, and of the others; accuracy is '
        'the fraction of true pixels found. Low near boundaries only: mask borders are coarse.',
    )
    inside, near = ious(tables[0]), ious(tables[1])
    table = tables.sum(0)
    found = np.where(
        table.sum(1) > 0, np.diag(table) / np.maximum(table.sum(1), 1), np.nan
    )
    columns = dict(IoU=ious(table), boundary=near, interior=inside, accuracy=found)
    mean = {
        name: float(np.nanmean(v)) if (v == v).any() else np.nan
        for name, v in columns.items()
    }
    rows = [{'class': 'mean'} | mean]
    for index, name in enumerate(classes):
        rows.append(
            {'class': name} | {key: float(v[index]) for key, v in columns.items()}
        )
    order = dict(
        sorted(zip(classes, columns['IoU'].tolist(), strict=True), key=lambda x: -x[1])
    )
    page.add_figure('iou', figures.draw_bars({'': order}, 'IoU'), 'IoU by class.')
    page.add_table('classes', rows)


def add_pictures(
    page: Page,
    ranked: Ranked,
    classes: Sequence[str],
    colours: Sequence[Colour],
    read: ReadPicture,
) -> None:
    """Add the images with the worst and the best mean IoU."""
    visualizer = SegLocalVisualizer(name='report', alpha=0.6)
    visualizer.dataset_meta = dict(classes=list(classes), palette=list(colours))
    ranked.add_to(
        page,
        'Truth on the left, prediction on the right.',
        lambda image: draw_both_labels(visualizer, image, read),
        lambda row: f'mIoU {row["mIoU"]:.3f}',
    )


def draw_both_labels(
    visualizer: SegLocalVisualizer, image: Image, read: ReadPicture
) -> np.ndarray:
    """An image with its true labels, beside itself with the predicted ones (BGR)."""
    (top, left), (height, width) = image.row['place'], image.content[0].shape
    part, drawn = (left, top, left + width, top + height), []
    picture = read(image.row['path'], part)[..., ::-1]
    for labels in image.content:
        sample = SegDataSample()
        sample.pred_sem_seg = PixelData(
            data=torch.from_numpy(labels.astype(np.int64))[None]
        )
        drawn.append(draw(visualizer, 'report', picture, sample, with_labels=False))
    return side_by_side(*drawn)


def add_panoptic(page: Page, cfg: Config, model: BaseModel) -> None:
    """Add all sections on segments; UsageError if the config does not test them by COCO's PQ."""
    loader, ranked, counts = build_loader(cfg), Ranked(), list[np.ndarray]()
    dataset: Any = loader.dataset
    key, node = evaluators(cfg, 'test_evaluator')[0]
    if not node.type.endswith('CocoPanopticMetric'):
        raise UsageError(f'report: {key} is {node.type}; give CocoPanopticMetric')
    with redirect_stdout(io.StringIO()):  # what pycocotools prints
        metric = build_part(
            cfg, key, METRICS, node, outfile_prefix=None, format_only=False
        )
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
    add_panoptic_classes(
        page, np.sum(counts, 0), model.dataset_meta['classes'], num_things(cfg)
    )
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


def add_panoptic_classes(
    page: Page, counts: np.ndarray, classes: Sequence[str], things: int
) -> None:
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
    truth = draw(
        visualizer, 'report', picture, image.content, draw_gt=True, draw_pred=False
    )
    return side_by_side(truth, draw(visualizer, 'report', picture, image.content))
