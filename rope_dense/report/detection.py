"""The report of a detector, with boxes or masks of objects."""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mmcv
import numpy as np
import torch
from mmdet.datasets.transforms import LoadAnnotations
from mmdet.structures import DetDataSample
from mmdet.visualization import DetLocalVisualizer
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.structures import InstanceData
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torch.utils.data import Dataset

from ..predict.files import coco_annotations
from ..project.errors import UsageError
from . import figures
from .matching import (
    ERRORS,
    Matches,
    Scored,
    best_threshold,
    confusion,
    costs,
    fix,
    match,
    mean_ap,
    precision_recall,
)
from .page import Page
from .predictions import build_loader, max_value_of, predict, read_picture

Colour = tuple[int, int, int]
SIZES = ('AP', 'AP small', 'AP medium', 'AP large')  # COCO's: below 32, below 96 pixels squared
WORST, BEST, CROPS = 6, 3, 24
MEANING = (
    'AP gained if one kind of error were fixed (all predictions), and its number at the thresholds '
    'of the best F1. class: right place, wrong class. place: right class, IoU 0.1 to 0.5. both: '
    'wrong class and place. duplicate: the object was already found. background: nothing is there. '
    'missed: no prediction comes near.'
)


def report(
    page: Page, cfg: Config, model: BaseModel, classes: Sequence[str], colours: Sequence[Colour]
) -> None:
    """Add all sections on boxes, or masks if the model predicts them.

    Raises:
        UsageError: the model predicts no instances.
    """
    loader = build_loader(cfg)
    images: list[dict] = []
    predictions: list[dict] = []
    for index, sample in enumerate(predict(model, loader)):
        if 'pred_instances' not in sample:
            raise UsageError('report: the model predicts no boxes or masks of objects')
        height, width = sample.ori_shape[:2]
        images.append(dict(id=index, path=sample.img_path, height=height, width=width))
        found = coco_annotations(sample.pred_instances, 0.0)
        predictions += [dict(item, image_id=index) for item in found]
    masks = bool(predictions) and 'segmentation' in predictions[0]
    truth = true_objects(loader.dataset, masks)
    white = max_value_of(cfg)
    add_sections(page, images, truth, predictions, classes, colours, masks, white)


def true_objects(dataset: Dataset, masks: bool) -> list[dict]:
    """The objects of a data set of mmdet as annotations; classes from 1, images by their index."""
    objects: list[dict] = []
    load = LoadAnnotations(with_bbox=False, with_label=False, with_mask=masks)
    for index in range(len(dataset)):  # type: ignore[arg-type]
        data = dataset.get_data_info(index)  # type: ignore[attr-defined]
        data['ori_shape'] = data['height'], data['width']
        drawn = load.transform(data)['gt_masks'].masks if masks else ()
        for number, item in enumerate(data['instances']):
            left, top, right, bottom = item['bbox']
            box = [left, top, right - left, bottom - top]
            annotation = dict(
                id=len(objects) + 1,
                image_id=index,
                category_id=item['bbox_label'] + 1,
                bbox=box,
                area=box[2] * box[3],
                iscrowd=int(item.get('ignore_flag', 0)),
            )
            if masks:
                run_lengths = coco_mask.encode(np.asfortranarray(drawn[number], np.uint8))
                annotation |= dict(
                    segmentation=run_lengths, area=float(coco_mask.area(run_lengths))
                )
            objects.append(annotation)
    return objects


def add_sections(
    page: Page,
    images: Sequence[dict],
    truth: Sequence[dict],
    predictions: Sequence[dict],
    classes: Sequence[str],
    colours: Sequence[Colour],
    masks: bool,
    max_value: int | None = None,
) -> None:
    """Add the sections of predictions that are made.

    Args:
        images: with id, path, height and width.
        max_value: is white in 16-bit images.
    """
    matches = match(truth, predictions, masks)
    scored, counts = fix(matches)
    by_class = {label: [x for x in scored if x.label == label] for label in counts}
    cuts = {label: best_threshold(by_class[label], count) for label, count in counts.items()}
    kept = [x for x in predictions if x['score'] >= threshold_of(cuts, x)]
    at_cuts = match(truth, kept, masks)
    aps = coco_aps(images, truth, predictions, len(classes), masks)
    page.figures['about'] |= dict(
        images=len(images), objects=len(matches.truth), kind='masks' if masks else 'boxes'
    )
    add_classes(page, classes, counts, cuts, aps)
    add_errors(page, matches, at_cuts)
    add_curves(page, classes, by_class, counts)
    table = confusion(at_cuts, len(classes))
    page.section('Confusion', 'Objects by true and predicted class, at the best thresholds.')
    names = [*classes, 'nothing']
    page.add_figure('confusion', figures.matrix(table, names), 'Rows are the truth.', table)
    add_calibration(page, scored)
    painter = Painter(images, truth, kept, classes, colours, max_value)
    add_pictures(page, painter, at_cuts)
    add_crops(page, painter, at_cuts)


def threshold_of(cuts: dict[int, dict[str, float]], prediction: dict) -> float:
    """The best threshold of the class of a prediction; 0.5 for a class without truth."""
    return cuts.get(prediction['category_id'], dict(threshold=0.5))['threshold']


def coco_aps(
    images: Sequence[dict],
    truth: Sequence[dict],
    predictions: Sequence[dict],
    num_classes: int,
    masks: bool,
) -> np.ndarray:
    """COCO's AP [4 sizes, classes] for IoU 0.5 to 0.95, and in a last row AP at IoU 0.5."""
    if not predictions:
        return np.zeros((len(SIZES) + 1, num_classes))
    categories = [dict(id=label, name=str(label)) for label in range(1, num_classes + 1)]
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = dict(images=list(images), annotations=list(truth), categories=categories)
        coco.createIndex()
        results = coco.loadRes([dict(item) for item in predictions])
        evaluation = COCOeval(coco, results, 'segm' if masks else 'bbox')
        evaluation.evaluate()
        evaluation.accumulate()
    precision = evaluation.eval['precision'][..., -1]  # [IoU, recall, class, size]
    precision = np.where(precision < 0, np.nan, precision)
    return np.concatenate([precision.mean((0, 1)).T, precision[:1, :, :, 0].mean(1)])


def add_classes(
    page: Page,
    classes: Sequence[str],
    counts: dict[int, int],
    cuts: dict[int, dict[str, float]],
    aps: np.ndarray,
) -> None:
    """Add AP by class and size, with the threshold of the best F1."""
    page.section(
        'Classes',
        'AP for IoU 0.5 to 0.95 by class, and by the area of the box or mask (COCO takes the area '
        'in the annotation file: figures by size may differ); the score with the best F1.',
    )
    columns = [*SIZES, 'AP50']
    rows: list[dict[str, Any]] = []
    for index, name in enumerate(classes):
        if index + 1 in counts:
            values = dict(zip(columns, aps[:, index].tolist(), strict=True))
            rows.append(
                dict({'class': name}, objects=counts[index + 1], **values, **cuts[index + 1])
            )
    mean: dict[str, Any] = {'class': 'mean', 'objects': sum(counts.values())}
    for name in list(rows[0])[2:] if rows else ():
        numbers = [row[name] for row in rows if not np.isnan(row[name])]
        mean[name] = float(np.mean(numbers)) if numbers else float('nan')
    page.add_table('classes', [mean, *rows])


def add_errors(page: Page, matches: Matches, at_cuts: Matches) -> None:
    """Add the kinds of error: what each costs, and how often it occurs."""
    page.section('Kinds of error', MEANING)
    numbers = Counter(item.kind for item in at_cuts.predictions)
    numbers['missed'] = len(at_cuts.missed)
    gains = costs(matches)
    rows = [{'error': kind, 'AP50 lost': gains[kind], 'number': numbers[kind]} for kind in ERRORS]
    page.figures['AP50'] = mean_ap(*fix(matches))
    page.add_figure('errors', figures.bars(gains, 'AP50 lost'), 'AP50 lost to each kind of error.')
    page.add_table('errors', rows)


def add_curves(
    page: Page, classes: Sequence[str], by_class: dict[int, list[Scored]], counts: dict[int, int]
) -> None:
    """Add precision against recall at IoU 0.5."""
    page.section('Precision and recall', 'At IoU 0.5, for each class.')
    lines = {}
    for label, count in counts.items():
        precision, recall, _ = precision_recall(by_class[label], count)
        lines[classes[label - 1]] = (recall.tolist(), precision.tolist())
    figure = figures.lines(lines, 'recall', 'precision', unit=True)
    page.add_figure('precision_recall', figure, 'Precision against recall.', lines)


def add_calibration(page: Page, scored: Sequence[Scored]) -> None:
    """Add the share of right predictions against the score."""
    page.section(
        'Calibration',
        'A score of 0.8 should be right 8 times of 10: bars below the diagonal are overconfident.',
    )
    data = calibration(scored)
    figure = figures.calibration(data)
    page.add_figure('calibration', figure, 'Right predictions by score, at IoU 0.5.', data)


def calibration(scored: Sequence[Scored], bins: int = 10) -> list[dict[str, float]]:
    """Number, mean score and share of right predictions in equal ranges of the score."""
    scores = np.array([item.score for item in scored])
    right = np.array([item.right for item in scored])
    places = np.minimum((scores * bins).astype(int), bins - 1)
    rows = []
    for index in np.unique(places):
        inside = places == index
        values = dict(score=scores[inside].mean(), right=right[inside].mean())
        rows.append(dict(number=int(inside.sum()), **{k: float(v) for k, v in values.items()}))
    return rows


def add_pictures(page: Page, painter: Painter, matches: Matches) -> None:
    """Add the images with the worst and the best F1."""
    ranked = rank_images(matches)
    shown = [('Worst pictures', 'worst', ranked[:WORST])]
    shown.append(('Best pictures', 'best', ranked[WORST:][-BEST:][::-1]))
    for title, name, rows in shown:
        page.section(title, 'Truth on the left, predictions on the right, at the best thresholds.')
        page.figures[name] = []
        for number, row in enumerate(rows, start=1):
            path = painter.images[row['image']]['path']
            page.figures[name].append(dict(row, path=path))
            words = f'{Path(path).name}: {row["right"]} right, {row["wrong"]} wrong, '
            picture = painter.draw(row['image'])
            page.add_picture(f'{name}_{number}', picture, f'{words}{row["not_found"]} not found')


def rank_images(matches: Matches) -> list[dict]:
    """The images with truth or predictions, worst F1 first, those with more errors before."""
    rows: dict[int, Counter] = {}
    for item in matches.predictions:
        if item.kind != 'ignored':
            name = 'right' if item.kind == 'right' else 'wrong'
            rows.setdefault(item.prediction['image_id'], Counter())[name] += 1
    for truth in matches.truth:
        name = 'found' if truth['id'] in matches.found else 'not_found'
        rows.setdefault(truth['image_id'], Counter())[name] += 1
    ranked = []
    for image, row in rows.items():
        numbers = {name: row[name] for name in ('right', 'wrong', 'not_found')}
        errors = row['wrong'] + row['not_found']
        ranked.append(dict(image=image, f1=row['right'] / (row['right'] + errors / 2), **numbers))
    return sorted(ranked, key=lambda r: (r['f1'], -r['wrong'] - r['not_found'], -r['right']))


def add_crops(page: Page, painter: Painter, matches: Matches) -> None:
    """Add small pictures of missed objects and of predictions where nothing is."""
    invented = [item for item in matches.predictions if item.kind == 'background']
    missed = sorted(matches.missed, key=lambda item: -item['area'])
    for title, name, items in (
        ('Missed objects', 'missed_objects', missed),
        ('Invented objects', 'invented_objects', [item.prediction for item in invented]),
    ):
        page.section(title, f'{len(items)} at the best thresholds; the first {CROPS} at most.')
        crops = [(painter.crop(item), painter.label(item)) for item in items[:CROPS]]
        if crops:
            page.add_figure(name, figures.grid(crops), title)


class Painter:
    """Pictures of the images, with truth beside predictions."""

    def __init__(
        self,
        images: Sequence[dict],
        truth: Sequence[dict],
        predictions: Sequence[dict],
        classes: Sequence[str],
        colours: Sequence[Colour],
        max_value: int | None,
    ) -> None:
        self.images, self.truth, self.predictions = images, truth, predictions
        self.classes, self.max_value = classes, max_value
        self.visualizer = DetLocalVisualizer(name='report')
        self.visualizer.dataset_meta = dict(classes=classes, palette=list(colours))

    def draw(self, image: int) -> np.ndarray:
        """An image with its truth, beside itself with its predictions (BGR)."""
        sample = DetDataSample()
        sample.gt_instances = instances_of(self.truth, image)
        sample.pred_instances = instances_of(self.predictions, image)
        rgb = read_picture(self.images[image]['path'], self.max_value)
        self.visualizer.add_datasample('report', rgb, sample, pred_score_thr=-1.0)
        return np.ascontiguousarray(self.visualizer.get_image()[..., ::-1])

    def crop(self, item: dict) -> np.ndarray:
        """The square around an object (RGB), twice its size, grey outside of the image."""
        rgb = read_picture(self.images[item['image_id']]['path'], self.max_value)
        left, top, width, height = item['bbox']
        side = max(width, height, 8)
        centre = np.array([left + width / 2, top + height / 2])
        corners = np.concatenate([centre - side, centre + side - 1])
        marked = mmcv.imshow_bboxes(
            rgb,
            np.array([[left, top, left + width, top + height]]),
            colors=(255, 210, 0),
            show=False,
        )
        return mmcv.imcrop(marked, corners, pad_fill=128)

    def label(self, item: dict) -> str:
        """The class of an object, with its score if it is a prediction."""
        score = f' {item["score"]:.2f}' if 'score' in item else ''
        return f'{self.classes[item["category_id"] - 1]}{score}'


def instances_of(items: Sequence[dict], image: int) -> InstanceData:
    """The objects of an image in mmdet's form."""
    items = [item for item in items if item['image_id'] == image]
    boxes = torch.tensor([item['bbox'] for item in items], dtype=torch.float32).reshape(-1, 4)
    data = InstanceData(labels=torch.tensor([item['category_id'] - 1 for item in items]).long())
    data.bboxes = torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)
    if items and 'score' in items[0]:
        data.scores = torch.tensor([item['score'] for item in items])
    elif not items:
        data.scores = torch.zeros(0)
    if items and 'segmentation' in items[0]:
        drawn = [coco_mask.decode(item['segmentation']) for item in items]
        data.masks = torch.from_numpy(np.stack(drawn)).bool()
    return data
