"""The report of a detector, with boxes or masks of objects."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from mmdet.datasets.transforms import LoadAnnotations
from mmengine.config import Config
from mmengine.model import BaseModel
from pycocotools import mask as coco_mask
from torch.utils.data import DataLoader, Dataset

from ..data.tiles.dataset import TiledDataset
from ..predict.files import coco_annotations
from ..utils.errors import UsageError
from . import figures
from .objects import (
    ERRORS,
    KINDS,
    Matches,
    Objects,
    Scored,
    best_threshold,
    coco_aps,
    confusion,
    error_costs,
    fix_errors,
    match_truth,
    mean_ap,
    objects_of,
    precision_recall,
)
from .page import Page
from .painter import Colour, Painter
from .predictions import (
    Ranked,
    ReadPicture,
    build_loader,
    picture_reader,
    predict_samples,
)
from .suspects import add_suspects, find_suspects

SIZES = (
    'AP',
    'AP small',
    'AP medium',
    'AP large',
)  # COCO's: below 32, below 96 pixels squared
CROPS = 24
POINTS = 2000  # of a curve, at most
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
    images, predictions = predict_objects(model, loader)
    masks, tiled = (
        any(mask is not None for mask in predictions['mask'][:1]),
        loader.dataset,
    )
    truth = ground_truth(
        tiled.whole if isinstance(tiled, TiledDataset) else tiled, masks
    )
    matches = match_truth(truth, predictions, masks)
    del (
        predictions
    )  # the matches have those that count: of many images there is no room for both
    classes, colours = model.dataset_meta['classes'], model.dataset_meta['palette']
    add_sections(page, images, matches, classes, colours, masks, picture_reader(cfg))


def predict_objects(model: BaseModel, loader: DataLoader) -> tuple[list[dict], Objects]:
    """The images of the test data, with id, path, height and width, and the objects in them."""
    images, parts = list[dict](), [objects_of([])]
    for index, sample in enumerate(predict_samples(model, loader)):
        if 'pred_instances' not in sample:
            raise UsageError('report: the model predicts no boxes or masks of objects')
        height, width = sample.ori_shape[:2]
        images.append(dict(id=index, path=sample.img_path, height=height, width=width))
        parts.append(objects_of(coco_annotations(sample.pred_instances), index))
    return images, np.concatenate(parts)


def ground_truth(dataset: Dataset, masks: bool) -> Objects:
    """The objects of a data set of mmdet; images by their index."""
    parts = [objects_of([])]
    load = LoadAnnotations(with_bbox=False, with_label=False, with_mask=masks)
    for index in range(len(dataset)):  # type: ignore[arg-type]
        data = dataset.get_data_info(index)  # type: ignore[attr-defined]
        data['ori_shape'] = data['height'], data['width']
        drawn = load.transform(data)['gt_masks'].masks if masks else ()
        annotations = list[dict]()
        for number, item in enumerate(data['instances']):
            left, top, right, bottom = item['bbox']
            annotation = dict(
                category_id=item['bbox_label'] + 1,
                bbox=[left, top, right - left, bottom - top],
                iscrowd=int(item.get('ignore_flag', 0)),
            )
            if masks:
                run_lengths = coco_mask.encode(
                    np.asfortranarray(drawn[number], np.uint8)
                )
                area = float(coco_mask.area(run_lengths))
                annotation |= dict(segmentation=run_lengths, area=area)
            annotations.append(annotation)
        parts.append(objects_of(annotations, index))
    truth = np.concatenate(parts)
    truth['id'] = np.arange(len(truth))
    return truth


def add_sections(
    page: Page,
    images: Sequence[dict],
    matches: Matches,
    classes: Sequence[str],
    colours: Sequence[Colour],
    masks: bool,
    read: ReadPicture,
) -> None:
    """Add the sections of predictions that are made.

    Args:
        images: see ``predict_objects``.
        matches: of all predictions.
        read: see ``picture_reader``.
    """
    scored, counts = fix_errors(matches)
    by_class = {label: scored.where(scored.label == label) for label in counts}
    cuts = {
        label: best_threshold(by_class[label], count) for label, count in counts.items()
    }
    least = np.full(len(classes) + 1, 0.5)  # of classes without truth
    least[[*cuts]] = [cut['threshold'] for cut in cuts.values()]
    kept = matches.predictions['score'] >= least[matches.predictions['label']]
    at_cuts = match_truth(matches.truth, matches.predictions[kept], masks)
    aps = coco_aps(matches, len(classes))
    page.figures['about'] |= dict(
        images=len(images),
        objects=sum(counts.values()),
        kind='masks' if masks else 'boxes',
    )
    add_classes(page, classes, counts, cuts, aps)
    add_errors(page, matches, at_cuts)
    add_precision_recall(page, classes, by_class, counts)
    add_confusion(page, confusion(at_cuts, len(classes)), classes)
    add_calibration(page, scored)
    painter = Painter(images, at_cuts, classes, colours, read)
    add_pictures(page, painter)
    add_crops(page, painter)
    add_suspects(page, painter, find_suspects(matches, masks))


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
                dict(
                    {'class': name},
                    objects=counts[index + 1],
                    **values,
                    **cuts[index + 1],
                )
            )
    mean: dict[str, Any] = {'class': 'mean', 'objects': sum(counts.values())}
    for name in list(rows[0])[2:] if rows else ():
        numbers = [row[name] for row in rows if not np.isnan(row[name])]
        mean[name] = float(np.mean(numbers)) if numbers else float('nan')
    page.add_table('classes', [mean, *rows])


def add_errors(page: Page, matches: Matches, at_cuts: Matches) -> None:
    """Add the kinds of error: the cost of each, how often it occurs, and its remedy."""
    page.section('Kinds of error', MEANING)
    numbers = Counter(KINDS[kind] for kind in at_cuts.kinds.tolist())
    numbers['missed'] = int(at_cuts.missed.sum())
    gains = error_costs(matches)
    rows = [
        {'error': kind, LOST: gains[kind], NUMBER: numbers[kind], 'check': CHECKS[kind]}
        for kind in ERRORS
    ]
    page.figures['AP50'] = mean_ap(*fix_errors(matches))
    page.add_figure(
        'errors', figures.draw_bars({'': gains}, LOST), 'AP50 lost by kind of error.'
    )
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
    page: Page,
    classes: Sequence[str],
    by_class: dict[int, Scored],
    counts: dict[int, int],
) -> None:
    """Add precision against recall at IoU 0.5."""
    page.section('Precision and recall', 'At IoU 0.5, for each class.')
    lines = {}
    for label, count in counts.items():
        precision, recall = precision_recall(by_class[label].right, count)
        if len(recall) > POINTS:
            places = np.searchsorted(recall, np.linspace(0, recall[-1], POINTS))
            precision, recall = precision[places], recall[places]
        lines[classes[label - 1]] = (recall.tolist(), precision.tolist())
    figure = figures.draw_lines({'': lines}, 'recall', 'precision', unit=True)
    page.add_figure('precision_recall', figure, 'Precision against recall.', lines)


def add_confusion(page: Page, table: np.ndarray, classes: Sequence[str]) -> None:
    """Add the number of objects by true and predicted class."""
    page.section(
        'Confusion', 'Objects by true and predicted class, at the best thresholds.'
    )
    figure = figures.draw_matrix({'': table}, [*classes, 'nothing'])
    page.add_figure('confusion', figure, 'Rows: truth.', table)


def add_calibration(page: Page, scored: Scored) -> None:
    """Add the fraction of right predictions against the score."""
    page.section(
        'Calibration',
        'A score of 0.8 should be right 8 times of 10: bars below the diagonal are overconfident.',
    )
    data = calibration_rows(scored)
    figure = figures.draw_calibration({'': data})
    page.add_figure('calibration', figure, 'True positives by score, at IoU 0.5.', data)


def calibration_rows(scored: Scored, bins: int = 10) -> list[dict[str, float]]:
    """Number, mean score and fraction of right predictions in equal ranges of the score."""
    places = np.minimum((scored.score * bins).astype(int), bins - 1)
    rows = []
    for index in np.unique(places):
        inside = places == index
        values = dict(
            score=scored.score[inside].mean(), right=scored.right[inside].mean()
        )
        rows.append(
            dict(number=int(inside.sum()), **{k: float(v) for k, v in values.items()})
        )
    return rows


def add_pictures(page: Page, painter: Painter) -> None:
    """Add the images with the worst and the best F1."""
    ranked = rank_images(painter.matches, [image['path'] for image in painter.images])
    ranked.add_to(
        page,
        'Truth on the left, predictions on the right, at the best thresholds.',
        lambda image: painter.draw(image.row['image']),
        lambda row: (
            f'{row["right"]} right, {row["wrong"]} wrong, {row["not_found"]} not found'
        ),
    )


def rank_images(matches: Matches, paths: Sequence[str]) -> Ranked:
    """The images with truth or predictions, by their F1 and number of errors."""
    right, wrong = matches.are('right'), ~matches.are('right', 'ignored')
    lost = matches.truth[~matches.found & ~matches.truth['crowd']]
    images, ranked = matches.predictions['image'], Ranked()
    groups = dict(right=images[right], wrong=images[wrong], not_found=lost['image'])
    columns = {name: np.bincount(x, minlength=len(paths)) for name, x in groups.items()}
    for image, path in enumerate(paths):
        row = {name: int(column[image]) for name, column in columns.items()}
        if any(row.values()):
            errors = row['wrong'] + row['not_found']
            f1 = row['right'] / (row['right'] + errors / 2)
            place = (f1, -errors, -row['right'])
            ranked.add(place, dict(image=image, f1=f1, **row, path=path))
    return ranked


def add_crops(page: Page, painter: Painter) -> None:
    """Add small pictures of missed objects and of predictions where nothing is."""
    matches = painter.matches
    missed = matches.truth[matches.missed]
    missed = missed[np.argsort(-missed['area'], kind='stable')]
    for title, name, objects in (
        ('Missed objects (false negatives)', 'missed_objects', missed),
        (
            'False positives',
            'false_positives',
            matches.predictions[matches.are('background')],
        ),
    ):
        page.section(
            title, f'{len(objects)} at the best thresholds; the first {CROPS} at most.'
        )
        crops = [(painter.label(item), item, None) for item in objects[:CROPS]]
        painter.add_crops(page, name, crops, title)
