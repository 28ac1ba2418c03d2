"""The report of a panoptic model. H x W pixels, K classes, of which things are the first."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from mmdet.structures import DetDataSample
from mmdet.visualization import DetLocalVisualizer
from mmengine.config import Config
from mmengine.dataset import BaseDataset
from mmengine.model import BaseModel
from mmengine.structures import PixelData

from ..datasets.images.drawing import draw
from ..datasets.panoptic import OFFSET, panoptic_segments, read_ids
from ..project.errors import UsageError
from ..project.model import num_things
from . import figures
from .page import Page
from .predictions import ReadPicture, build_loader, picture_reader, predict_samples
from .ranked import Image, Ranked, side_by_side

MATCH = 0.5  # IoU above which a predicted segment is the true one: no two can be


class Truth(NamedTuple):
    """The true segments of an image."""

    ids: np.ndarray  # [H, W]; 0 is void
    labels: dict[int, int]  # the class of each id
    crowds: Sequence[int] = ()  # ids of groups of things, neither to be found nor missed


def add_panoptic(page: Page, cfg: Config, model: BaseModel) -> None:
    """Add all sections on segments; UsageError if the data have none."""
    classes, loader, things = model.dataset_meta['classes'], build_loader(cfg), num_things(cfg)
    dataset: Any = loader.dataset
    infos = map(dataset.get_data_info, range(len(dataset)))
    places = {info['img_path']: index for index, info in enumerate(infos)}
    counts, ranked = np.zeros((len(classes), 4)), Ranked()
    for sample in predict_samples(model, loader):
        truth = read_truth(dataset, places[sample.img_path], things)
        labels = sample.pred_panoptic_seg.sem_seg[0].numpy()
        ids, segments = panoptic_segments(labels, range(len(classes)))
        found = [segment['category_id'] for segment in segments]
        image_counts = count_segments(truth, ids, found, len(classes))
        counts += image_counts
        if image_counts.any():
            row = dict(path=sample.img_path, PQ=quality_row('', image_counts)['PQ'])
            ranked.add(row['PQ'], row, (panoptic_labels(truth, len(classes)), labels))
    page.figures['about'] |= dict(images=len(places))
    add_classes(page, counts, classes, things)
    visualizer, read = DetLocalVisualizer(name='report'), picture_reader(cfg)
    visualizer.dataset_meta = model.dataset_meta
    ranked.add_to(
        page,
        'Truth on the left, prediction on the right.',
        lambda image: draw_both_segments(visualizer, image, read),
        lambda row: f'PQ {row["PQ"]:.3f}',
    )


def read_truth(dataset: BaseDataset, index: int, things: int) -> Truth:
    """The true segments of an image of mmdet's ``CocoPanopticDataset``; UsageError for another."""
    info = dataset.get_data_info(index)
    if 'segments_info' not in info or not info.get('seg_map_path'):
        raise UsageError('report: needs true segments to compare with, of a CocoPanopticDataset')
    labels, crowds = {}, []
    for segment in info['segments_info']:
        labels[segment['id']] = segment['category']
        if segment['category'] < things and not segment['is_thing']:
            crowds.append(segment['id'])
    return Truth(read_ids(info['seg_map_path']), labels, crowds)


def panoptic_labels(truth: Truth, num_classes: int) -> np.ndarray:
    """Segments as mmdet's labels [H, W], int32: class + 1000 x number; void is ``num_classes``."""
    labels = np.full(truth.ids.shape, num_classes, np.int32)
    for number, (segment, label) in enumerate(truth.labels.items(), start=1):
        labels[truth.ids == segment] = label + OFFSET * number
    return labels


def count_segments(
    truth: Truth, ids: np.ndarray, found: Sequence[int], num_classes: int
) -> np.ndarray:
    """Matched segments by class: the sum of their IoUs, TP, FP and FN, [K, 4].

    As panopticapi counts (Kirillov et al., CVPR 2019): void does not count in an IoU; nor does a
    false segment count that is void, or a crowd of its class, for more than half.

    Args:
        ids: of the predicted segments, [H, W], 1, 2 ...
        found: their classes.
    """
    counts, found_labels = np.zeros((num_classes, 4)), np.array([-2, *found])
    true_ids, rows = np.unique(truth.ids, return_inverse=True)
    shape = len(true_ids), len(found_labels)
    pairs = rows.reshape(ids.shape) * shape[1] + ids
    shared = np.bincount(pairs.ravel(), minlength=shape[0] * shape[1]).reshape(shape)  # pixels
    true_labels = np.array([truth.labels.get(number, -1) for number in true_ids.tolist()])
    true_labels[np.isin(true_ids, truth.crowds)] = -1
    void = shared[true_ids == 0].sum(0)
    areas = shared.sum(0)
    unions = shared.sum(1, keepdims=True) + areas - shared - void
    ious = (true_labels[:, None] == found_labels) * shared / np.maximum(unions, 1)
    missed, false = {*truth.labels} - {*truth.crowds}, {*range(1, len(found_labels))}
    for row, column in np.argwhere(ious > MATCH).tolist():
        counts[found_labels[column], :2] += ious[row, column], 1
        missed.remove(int(true_ids[row]))
        false.remove(column)
    for number in missed:
        counts[truth.labels[number], 3] += 1
    ignored = void.copy()
    for number in truth.crowds:
        same = found_labels == truth.labels[number]
        ignored[same] = (void + shared[true_ids == number].sum(0))[same]
    for column in false:
        counts[found_labels[column], 2] += ignored[column] <= areas[column] / 2
    return counts


def quality_row(name: str, counts: np.ndarray) -> dict[str, Any]:
    """The mean qualities of the classes that have segments, true or predicted; NaN for none."""
    ious, true, false, missed = counts[counts.any(1)].T
    number = true + (false + missed) / 2
    figure = dict(PQ=ious / number, SQ=ious / np.maximum(true, 1), RQ=true / number)
    row = {key: float(x.mean()) if len(x) else np.nan for key, x in figure.items()}
    sums = dict(TP=true.sum(), FP=false.sum(), FN=missed.sum())
    return {'class': name, **row, **{key: int(value) for key, value in sums.items()}}


def add_classes(page: Page, counts: np.ndarray, classes: Sequence[str], things: int) -> None:
    """Add the qualities of all classes, of things, of stuff, and of each class."""
    page.section(
        'Classes',
        'PQ is SQ times RQ: the mean IoU of the matched segments (of IoU above 0.5), and the F1 of '
        'finding segments. TP, FP and FN: segments that are matched, false, and missed. Low RQ: '
        'segments are not found, or in parts; low SQ: their masks are coarse.',
    )
    parts = dict(all=counts, things=counts[:things], stuff=counts[things:])
    rows = [quality_row(name, part) for name, part in parts.items()]
    rows += [quality_row(name, counts[[label]]) for label, name in enumerate(classes)]
    order = sorted(rows[3:], key=lambda row: -np.nan_to_num(row['PQ']))
    lengths = {row['class']: row['PQ'] for row in order}
    page.add_figure('pq', figures.draw_bars({'': lengths}, 'PQ'), 'PQ by class.')
    page.add_table('classes', rows)


def draw_both_segments(
    visualizer: DetLocalVisualizer, image: Image, read: ReadPicture
) -> np.ndarray:
    """An image with its true segments, beside itself with the predicted ones (BGR)."""
    picture, drawn = read(image.row['path'])[..., ::-1], []
    for labels in image.content:
        sample = DetDataSample()
        sample.pred_panoptic_seg = PixelData(sem_seg=torch.from_numpy(labels)[None])
        drawn.append(draw(visualizer, 'report', picture, sample))
    return side_by_side(*drawn)
