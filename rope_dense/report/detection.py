"""The report of a detector, with boxes or masks of objects."""

import contextlib
import io
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from mmdet.datasets.transforms import LoadAnnotations
from mmdet.evaluation.metrics import coco_metric
from mmengine.config import Config
from mmengine.model import BaseModel
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from torch.utils.data import Dataset

from ..large_images.dataset import TiledDataset
from ..predict.files import coco_annotations
from ..project.errors import UsageError
from . import figures
from .matching import (
    ERRORS,
    Matches,
    Scored,
    best_threshold,
    confusion,
    error_costs,
    fix_errors,
    match_truth,
    mean_ap,
    precision_recall,
)
from .page import Page
from .painter import Colour, Painter
from .predictions import ReadPicture, build_loader, picture_reader, predict_samples
from .ranked import Ranked
from .suspects import add_suspects, find_suspects

SIZES = ('AP', 'AP small', 'AP medium', 'AP large')  # COCO's: below 32, below 96 pixels squared
CROPS = 24
LOW = 0.05  # AP50 below which a model counts as untrained
CHECKS = {
    'class': 'similar classes in the confusion matrix, wrong labels',
    'localisation': 'image size, loose labels, more epochs',
    'both': 'as for class and localisation',
    'duplicate': 'NMS; for a DETR, more epochs',
    'background': 'objects without labels (see the pictures), images without objects in training',
    'missed': 'small objects: image size; rare classes: more data',
}
MEANING = (
    'AP50 lost is the gain from fixing one kind alone, over predictions of any score. The number '
    'counts the errors at the thresholds of the best F1, as the pictures below show them: an '
    'object can be missed there, and be found at a lower score for little AP50. class: wrong '
    'class, IoU 0.5 or more. localisation: right class, IoU 0.1 to 0.5. both: wrong class, IoU 0.1 '
    'to 0.5. duplicate: the object was already found. background: nothing is there. missed: no '
    'prediction comes near.'
)
LOST, NUMBER = 'AP50 lost (any score)', 'number (best F1)'


def add_detection(page: Page, cfg: Config, model: BaseModel) -> None:
    """Add all sections on boxes, or masks; UsageError if the model predicts no instances."""
    loader = build_loader(cfg)
    images: list[dict] = []
    predictions: list[dict] = []
    for index, sample in enumerate(predict_samples(model, loader)):
        if 'pred_instances' not in sample:
            raise UsageError('report: the model predicts no boxes or masks of objects')
        height, width = sample.ori_shape[:2]
        images.append(dict(id=index, path=sample.img_path, height=height, width=width))
        found = coco_annotations(sample.pred_instances)
        predictions += [dict(item, image_id=index) for item in found]
    masks = bool(predictions) and 'segmentation' in predictions[0]
    tiled = loader.dataset
    truth = ground_truth(tiled.whole if isinstance(tiled, TiledDataset) else tiled, masks)
    classes, colours = model.dataset_meta['classes'], model.dataset_meta['palette']
    read = picture_reader(cfg)
    add_sections(page, images, truth, predictions, classes, colours, masks, read)


def ground_truth(dataset: Dataset, masks: bool) -> list[dict]:
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
    read: ReadPicture,
) -> None:
    """Add the sections of predictions that are made.

    Args:
        images: with id, path, height and width.
        read: see ``picture_reader``.
    """
    matches = match_truth(truth, predictions, masks)
    scored, counts = fix_errors(matches)
    by_class = {label: [x for x in scored if x.label == label] for label in counts}
    cuts = {label: best_threshold(by_class[label], count) for label, count in counts.items()}
    best = {label: cut['threshold'] for label, cut in cuts.items()}  # of classes with truth
    kept = [x for x in predictions if x['score'] >= best.get(x['category_id'], 0.5)]
    at_cuts = match_truth(truth, kept, masks)
    aps = coco_aps(images, truth, predictions, len(classes), masks)
    page.figures['about'] |= dict(
        images=len(images), objects=len(matches.truth), kind='masks' if masks else 'boxes'
    )
    add_classes(page, classes, counts, cuts, aps)
    add_errors(page, matches, at_cuts)
    add_precision_recall(page, classes, by_class, counts)
    add_confusion(page, confusion(at_cuts, len(classes)), classes)
    add_calibration(page, scored)
    errors = [x.prediction for x in at_cuts.predictions if x.kind not in ('right', 'ignored')]
    painter = Painter(images, truth, kept, classes, colours, read, [*errors, *at_cuts.missed])
    add_pictures(page, painter, at_cuts)
    add_crops(page, painter, at_cuts)
    add_suspects(page, painter, find_suspects(matches, masks))


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
        # The evaluator of the tests, see ``use_faster_coco_eval``.
        evaluation = coco_metric.COCOeval(coco, results, 'segm' if masks else 'bbox')
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
    """Add the kinds of error: the cost of each, how often it occurs, and its remedy."""
    page.section('Kinds of error', MEANING)
    numbers = Counter(item.kind for item in at_cuts.predictions)
    numbers['missed'] = len(at_cuts.missed)
    gains = error_costs(matches)
    rows = [
        {'error': kind, LOST: gains[kind], NUMBER: numbers[kind], 'check': CHECKS[kind]}
        for kind in ERRORS
    ]
    page.figures['AP50'] = mean_ap(*fix_errors(matches))
    page.add_figure('errors', figures.draw_bars({'': gains}, LOST), 'AP50 lost by kind of error.')
    page.add_table('errors', rows)
    worst = max(ERRORS, key=lambda kind: gains[kind])
    if page.figures['AP50'] < LOW:
        page.advise(
            f'AP50 is below {LOW}: train longer, and see whether the labels are right '
            '(rope-dense browse-data). Kinds of error say little yet.'
        )
    elif gains[worst] > 0:
        page.advise(
            f'The largest kind of error is {worst!r}, {gains[worst]:.3f} of AP50. '
            f'Check: {CHECKS[worst]}.'
        )


def add_precision_recall(
    page: Page, classes: Sequence[str], by_class: dict[int, list[Scored]], counts: dict[int, int]
) -> None:
    """Add precision against recall at IoU 0.5."""
    page.section('Precision and recall', 'At IoU 0.5, for each class.')
    lines = {}
    for label, count in counts.items():
        precision, recall, _ = precision_recall(by_class[label], count)
        lines[classes[label - 1]] = (recall.tolist(), precision.tolist())
    figure = figures.draw_lines({'': lines}, 'recall', 'precision', unit=True)
    page.add_figure('precision_recall', figure, 'Precision against recall.', lines)


def add_confusion(page: Page, table: np.ndarray, classes: Sequence[str]) -> None:
    """Add the number of objects by true and predicted class."""
    page.section('Confusion', 'Objects by true and predicted class, at the best thresholds.')
    figure = figures.draw_matrix({'': table}, [*classes, 'nothing'])
    page.add_figure('confusion', figure, 'Rows: truth.', table)


def add_calibration(page: Page, scored: Sequence[Scored]) -> None:
    """Add the fraction of right predictions against the score."""
    page.section(
        'Calibration',
        'A score of 0.8 should be right 8 times of 10: bars below the diagonal are overconfident.',
    )
    data = calibration_rows(scored)
    figure = figures.draw_calibration({'': data})
    page.add_figure('calibration', figure, 'True positives by score, at IoU 0.5.', data)


def calibration_rows(scored: Sequence[Scored], bins: int = 10) -> list[dict[str, float]]:
    """Number, mean score and fraction of right predictions in equal ranges of the score."""
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
    ranked = rank_images(matches, [image['path'] for image in painter.images])
    ranked.add_to(
        page,
        'Truth on the left, predictions on the right, at the best thresholds.',
        lambda image: painter.draw(image.row['image']),
        lambda row: f'{row["right"]} right, {row["wrong"]} wrong, {row["not_found"]} not found',
    )


def rank_images(matches: Matches, paths: Sequence[str]) -> Ranked:
    """The images with truth or predictions, by their F1 and number of errors."""
    rows: dict[int, Counter] = {}
    for item in matches.predictions:
        if item.kind != 'ignored':
            name = 'right' if item.kind == 'right' else 'wrong'
            rows.setdefault(item.prediction['image_id'], Counter())[name] += 1
    for truth in matches.truth:
        name = 'found' if truth['id'] in matches.found else 'not_found'
        rows.setdefault(truth['image_id'], Counter())[name] += 1
    ranked = Ranked()
    for image, row in rows.items():
        numbers = {name: row[name] for name in ('right', 'wrong', 'not_found')}
        errors = row['wrong'] + row['not_found']
        f1 = row['right'] / (row['right'] + errors / 2)
        place = (f1, -errors, -row['right'])
        ranked.add(place, dict(image=image, f1=f1, **numbers, path=paths[image]))
    return ranked


def add_crops(page: Page, painter: Painter, matches: Matches) -> None:
    """Add small pictures of missed objects and of predictions where nothing is."""
    false_positives = [item for item in matches.predictions if item.kind == 'background']
    missed = sorted(matches.missed, key=lambda item: -item['area'])
    for title, name, items in (
        ('Missed objects (false negatives)', 'missed_objects', missed),
        ('False positives', 'false_positives', [item.prediction for item in false_positives]),
    ):
        page.section(title, f'{len(items)} at the best thresholds; the first {CROPS} at most.')
        crops = [(painter.crop(item), painter.label(item)) for item in items[:CROPS]]
        if crops:
            page.add_figure(name, figures.draw_grid(crops), title)
