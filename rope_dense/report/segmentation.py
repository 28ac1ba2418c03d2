"""The report of a segmentor, by labels of pixels; or of segments, if it is panoptic."""

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

import cv2
import numpy as np
import torch
from mmdet.visualization import DetLocalVisualizer
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.structures import PixelData
from mmseg.structures import SegDataSample
from mmseg.visualization import SegLocalVisualizer

from ..data.images.drawing import draw
from ..predict.files import class_scores
from ..project.model import num_things
from ..utils.errors import UsageError
from . import figures
from .page import ReportPage
from .predictions import (
    Image,
    Ranked,
    ReadPicture,
    build_metric,
    evaluated_loader,
    known_mean,
    picture_reader,
    predict_samples,
    side_by_side,
)
from .promise import FOUND, PIXELS, add_promise, found_pixels
from .record import Row

Colour = tuple[int, int, int]
BORDER = 0.0075  # half the width of a boundary, as a fraction of the diagonal


def add_segmentation(page: ReportPage, cfg: Config, model: BaseModel) -> None:
    """Add all sections on labels of pixels; UsageError if data or predictions have none."""
    classes = model.dataset_meta['classes']
    colours = model.dataset_meta['palette']
    inside = np.zeros((len(classes), len(classes)), int)
    near = np.zeros_like(inside)
    images = 0
    found = [np.empty(0, FOUND)]
    ranked = Ranked()
    for sample in predict_samples(model, evaluated_loader(page, cfg)):
        if 'gt_sem_seg' not in sample or 'pred_sem_seg' not in sample:
            raise UsageError(
                'report: needs predicted labels of pixels and a truth to compare with'
            )
        truth = sample.gt_sem_seg.data[0].numpy().astype(np.uint16)
        predicted = sample.pred_sem_seg.data[0].numpy().astype(np.uint16)
        is_near = boundary(truth)
        of_near = count_pixels(truth[is_near], predicted[is_near], len(classes))
        table = count_pixels(truth, predicted, len(classes))
        if page.record.promise:
            if 'seg_logits' not in sample or len(sample.seg_logits.data) < len(classes):
                raise UsageError(
                    '--miss: needs a score of each class for each pixel, which models of one score '
                    'do not have, nor images in tiles'
                )
            found.append(found_pixels(class_scores(sample), truth, images))
        near += of_near
        inside += table - of_near
        images += 1
        if table.any():
            mean = known_mean(ious(table))
            tile = sample.metainfo.get('place')
            start = [tile.window.top, tile.window.left] if tile else [0, 0]
            row = dict(path=sample.img_path, mIoU=mean, place=start)
            ranked.add(mean, row, (truth, predicted))
    page.record.about['images'] = images
    add_classes(page, inside, near, classes)
    add_promise(page, np.concatenate(found), classes, PIXELS)
    page.section('Confusion', 'Pixels by true and predicted class.')
    page.record.confusion = inside + near
    figure = figures.draw_matrix({'': page.record.confusion}, classes)
    page.add_figure('confusion', figure, 'Rows: truth.')
    add_pictures(page, ranked, classes, colours, picture_reader(cfg))


def count_pixels(
    truth: np.ndarray,
    predicted: np.ndarray,
    num_classes: int,
) -> np.ndarray:
    """Pixels [truth, predicted]; labels that are no class in the truth are not counted."""
    known = truth < num_classes
    pairs = truth[known].astype(int) * num_classes + predicted[known]
    counts = np.bincount(pairs, minlength=num_classes**2)
    return counts.reshape(num_classes, num_classes)


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


def add_classes(
    page: ReportPage,
    inside: np.ndarray,
    near: np.ndarray,
    classes: Sequence[str],
) -> None:
    """Add IoU and accuracy by class, and IoU on boundaries and inside.

    Args:
        inside, near: pixels [truth, predicted] that are not, and that are, near a boundary.
    """
    page.section(
        'Classes',
        'IoU of all pixels, of pixels near a boundary of the truth, and of the others; accuracy is '
        'the fraction of true pixels found. Low near boundaries only: mask borders are coarse.',
    )
    table = inside + near
    true = table.sum(1)
    columns = dict(
        IoU=ious(table),
        boundary=ious(near),
        interior=ious(inside),
        accuracy=np.where(true > 0, np.diag(table) / np.maximum(true, 1), np.nan),
    )
    mean: Row = {'class': 'mean'}
    rows = [mean, *({'class': name} for name in classes)]
    for name, values in columns.items():
        mean[name] = known_mean(values)
        for row, value in zip(rows[1:], values.tolist(), strict=True):
            row[name] = value
    lengths = {row['class']: row['IoU'] for row in rows[1:]}
    order = dict(sorted(lengths.items(), key=lambda item: -item[1]))
    page.add_figure('iou', figures.draw_bars({'': order}, 'IoU'), 'IoU by class.')
    page.add_table(rows)
    page.record.classes = rows


def add_pictures(
    page: ReportPage,
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
    visualizer: SegLocalVisualizer,
    image: Image,
    read: ReadPicture,
) -> np.ndarray:
    """An image with its true labels, beside itself with the predicted ones (BGR)."""
    top, left = image.row['place']
    height, width = image.content[0].shape
    part = (left, top, left + width, top + height)
    picture = read(image.row['path'], part)[..., ::-1]
    drawn = []
    for labels in image.content:
        pixels = torch.from_numpy(labels.astype(np.int64))
        sample = SegDataSample(pred_sem_seg=PixelData(data=pixels[None]))
        drawn.append(draw(visualizer, 'report', picture, sample))
    return side_by_side(*drawn)


def add_panoptic(page: ReportPage, cfg: Config, model: BaseModel) -> None:
    """Add all sections on segments; UsageError if the config does not test them by COCO's PQ."""
    loader = evaluated_loader(page, cfg)
    dataset: Any = loader.dataset
    settings = dict(outfile_prefix=None, format_only=False)
    metric: Any = build_metric(cfg, 'CocoPanopticMetric', **settings)
    metric.dataset_meta = dataset.metainfo
    numbers = dataset.cat_ids if metric.categories else range(len(dataset.cat_ids))
    ranked = Ranked()
    counts = list[np.ndarray]()
    for sample in predict_samples(model, loader):
        metric.process({}, [copy.deepcopy(sample).to_dict()])  # and changes its labels
        found = [metric.results[-1][number] for number in numbers]
        counts.append(np.array([[x.iou, x.tp, x.fp, x.fn] for x in found]))
        if counts[-1].any():
            quality = quality_row('', counts[-1])['PQ']
            ranked.add(quality, dict(path=sample.img_path, PQ=quality), sample)
    page.record.about['images'] = len(counts)
    classes = model.dataset_meta['classes']
    add_panoptic_classes(page, np.sum(counts, 0), classes, num_things(cfg))
    visualizer = DetLocalVisualizer(name='report')
    visualizer.dataset_meta = model.dataset_meta
    ranked.add_to(
        page,
        'Truth on the left, prediction on the right.',
        partial(draw_both_segments, visualizer, picture_reader(cfg)),
        lambda row: f'PQ {row["PQ"]:.3f}',
    )


def quality_row(name: str, counts: np.ndarray) -> Row:
    """The mean qualities of the classes that have segments, true or predicted; NaN for none.

    Args:
        counts: of each class the sum of the IoUs of matched segments, TP, FP and FN.
    """
    ious, true, false, missed = counts[counts.any(1)].T
    number = true + (false + missed) / 2
    qualities = dict(PQ=ious / number, SQ=ious / np.maximum(true, 1), RQ=true / number)
    row: Row = {'class': name}
    for key, values in qualities.items():
        row[key] = float(values.mean()) if values.size else np.nan
    return row | dict(TP=int(true.sum()), FP=int(false.sum()), FN=int(missed.sum()))


def add_panoptic_classes(
    page: ReportPage,
    counts: np.ndarray,
    classes: Sequence[str],
    things: int,
) -> None:
    """Add the qualities of all classes, of things, of stuff, and of each class.

    Args:
        counts: see ``quality_row``; things first.
        things: number of their classes.
    """
    page.section(
        'Classes',
        'PQ is SQ times RQ: the mean IoU of the matched segments (of IoU above 0.5), and the F1 of '
        'finding segments. TP, FP and FN: segments that are matched, false, and missed. Low RQ: '
        'segments are not found, or in parts; low SQ: their masks are coarse.',
    )
    rows = [quality_row(name, counts[[label]]) for label, name in enumerate(classes)]
    lengths = {row['class']: row['PQ'] for row in rows}
    page.add_figure('pq', figures.draw_bars({'': lengths}, 'PQ'), 'PQ by class.')
    page.record.classes = [
        quality_row('all', counts),
        quality_row('things', counts[:things]),
        quality_row('stuff', counts[things:]),
        *rows,
    ]
    page.add_table(page.record.classes)


def draw_both_segments(
    visualizer: DetLocalVisualizer,
    read: ReadPicture,
    image: Image,
) -> np.ndarray:
    """An image with its true segments, beside itself with the predicted ones (BGR)."""
    picture = read(image.row['path'], None)[..., ::-1]
    truth = draw(
        visualizer,
        'report',
        picture,
        image.content,
        draw_gt=True,
        draw_pred=False,
    )
    return side_by_side(truth, draw(visualizer, 'report', picture, image.content))
