"""The report of a detector, with boxes or masks of objects."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from mmdet.datasets.transforms import LoadAnnotations
from mmengine.config import Config
from mmengine.model import BaseModel
from pycocotools import mask as coco_mask
from torch.utils.data import DataLoader, Dataset

from ..data.tiles.dataset import TiledDataset
from ..predict.files import coco_annotations
from ..project.contents import box_limit
from ..utils.errors import UsageError
from . import figures
from .objects import (
    KINDS,
    Matches,
    Objects,
    Outcomes,
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
from .page import ReportPage
from .painter import Colour, Crop, Painter, Picture
from .predictions import (
    Ranked,
    ReadPicture,
    evaluated_loader,
    known_mean,
    picture_reader,
    predict_samples,
)
from .promise import OBJECTS, add_promise, found_objects
from .record import LOST, NUMBER, Line, Row, ScoreRange
from .suspects import add_suspects, find_suspects

# COCO's: below 32, below 96 pixels squared.
SIZES = ('AP', 'AP small', 'AP medium', 'AP large')
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


def add_detection(page: ReportPage, cfg: Config, model: BaseModel) -> None:
    """Add all sections on boxes, or masks; UsageError if the model predicts no instances."""
    loader = evaluated_loader(page, cfg)
    pictures, predictions = predict_objects(model, loader)
    masks = any(mask is not None for mask in predictions['mask'][:1])
    dataset = loader.dataset
    if isinstance(dataset, TiledDataset):
        dataset = dataset.whole
    limit = box_limit(cfg)
    matches = match_truth(ground_truth(dataset, masks), predictions, masks, limit)
    # The matches have those that count: of many images there is no room for both.
    del predictions
    classes = model.dataset_meta['classes']
    colours = model.dataset_meta['palette']
    read = picture_reader(cfg)
    add_matches(page, pictures, matches, classes, colours, masks, read)


def predict_objects(
    model: BaseModel,
    loader: DataLoader,
) -> tuple[list[Picture], Objects]:
    """The images of the test data, and the objects in them."""
    pictures = []
    parts = [objects_of([])]
    for index, sample in enumerate(predict_samples(model, loader)):
        if 'pred_instances' not in sample:
            raise UsageError('report: the model predicts no boxes or masks of objects')
        height, width = sample.ori_shape[:2]
        pictures.append(Picture(sample.img_path, height, width))
        parts.append(objects_of(coco_annotations(sample.pred_instances), index))
    return pictures, np.concatenate(parts)


def ground_truth(dataset: Dataset, masks: bool) -> Objects:
    """The objects of a data set of mmdet; images by their index."""
    parts = [objects_of([])]
    load = LoadAnnotations(with_bbox=False, with_label=False, with_mask=masks)
    for index in range(len(dataset)):  # type: ignore[arg-type]
        data = dataset.get_data_info(index)  # type: ignore[attr-defined]
        data['ori_shape'] = data['height'], data['width']
        drawn = load.transform(data)['gt_masks'].masks if masks else ()
        annotations = []
        for number, item in enumerate(data['instances']):
            left, top, right, bottom = item['bbox']
            annotation = dict(
                category_id=item['bbox_label'] + 1,
                bbox=[left, top, right - left, bottom - top],
                iscrowd=int(item.get('ignore_flag', 0)),
            )
            if masks:
                pixels = np.asfortranarray(drawn[number], np.uint8)
                run_lengths = coco_mask.encode(pixels)
                annotation['segmentation'] = run_lengths
                annotation['area'] = float(coco_mask.area(run_lengths))
            annotations.append(annotation)
        parts.append(objects_of(annotations, index))
    truth = np.concatenate(parts)
    truth['id'] = np.arange(len(truth))
    return truth


def add_matches(
    page: ReportPage,
    pictures: Sequence[Picture],
    matches: Matches,
    classes: Sequence[str],
    colours: Sequence[Colour],
    masks: bool,
    read: ReadPicture,
) -> None:
    """Add the sections on predictions that are made.

    Args:
        pictures: the images, by their index.
        matches: of all predictions.
        read: see ``picture_reader``.
    """
    outcomes, counts = fix_errors(matches)
    by_class = dict[int, Outcomes]()
    cuts = dict[int, dict[str, float]]()
    least = np.full(len(classes) + 1, 0.5)  # of classes without truth
    for label, count in counts.items():
        by_class[label] = outcomes.where(outcomes.label == label)
        cuts[label] = best_threshold(by_class[label], count)
        least[label] = cuts[label]['threshold']
    predictions = matches.predictions
    kept = predictions[predictions['score'] >= least[predictions['label']]]
    at_cuts = match_truth(matches.truth, kept, masks)
    page.record.about |= dict(
        images=len(pictures),
        objects=sum(counts.values()),
        kind='masks' if masks else 'boxes',
    )
    add_classes(page, classes, counts, cuts, coco_aps(matches, len(classes)))
    add_promise(page, found_objects(matches), classes, OBJECTS)
    add_errors(page, matches, at_cuts)
    add_precision_recall(page, classes, by_class, counts)
    add_confusion(page, confusion(at_cuts, len(classes)), classes)
    add_calibration(page, outcomes)
    painter = Painter(pictures, at_cuts, classes, colours, read)
    add_pictures(page, painter)
    add_crops(page, painter)
    add_suspects(page, painter, find_suspects(matches, masks))


def add_classes(
    page: ReportPage,
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
    rows = []
    numbers = dict[str, list[float]]()
    for label, count in counts.items():
        values = dict(zip([*SIZES, 'AP50'], aps[:, label - 1].tolist(), strict=True))
        values |= cuts[label]
        rows.append({'class': classes[label - 1], 'objects': count, **values})
        for name, value in values.items():
            numbers.setdefault(name, []).append(value)
    mean: Row = {'class': 'mean', 'objects': sum(counts.values())}
    for name, column in numbers.items():
        mean[name] = known_mean(column)
    page.record.classes = [mean, *rows]
    page.add_table(page.record.classes)


def add_errors(page: ReportPage, matches: Matches, at_cuts: Matches) -> None:
    """Add the kinds of error: the cost of each, how often it occurs, and its remedy."""
    page.section('Kinds of error', MEANING)
    numbers = Counter(KINDS[kind] for kind in at_cuts.kinds.tolist())
    numbers['missed'] = int(at_cuts.missed.sum())
    ap = mean_ap(*fix_errors(matches))
    gains = error_costs(matches)
    rows = []
    for kind, remedy in CHECKS.items():
        rows.append(
            {
                'error': kind,
                LOST: gains[kind],
                NUMBER: numbers[kind],
                'check': remedy,
            }
        )
    figure = figures.draw_bars({'': gains}, LOST)
    page.add_figure('errors', figure, 'AP50 lost by kind of error.')
    page.add_table(rows)
    page.record.AP50 = ap
    page.record.errors = rows
    worst = max(gains, key=gains.__getitem__)
    if ap < LOW:
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
    page: ReportPage,
    classes: Sequence[str],
    by_class: dict[int, Outcomes],
    counts: dict[int, int],
) -> None:
    """Add precision against recall at IoU 0.5."""
    page.section('Precision and recall', 'At IoU 0.5, for each class.')
    lines = dict[str, Line]()
    for label, count in counts.items():
        precision, recall = precision_recall(by_class[label].right, count)
        if len(recall) > POINTS:
            places = np.searchsorted(recall, np.linspace(0, recall[-1], POINTS))
            precision = precision[places]
            recall = recall[places]
        lines[classes[label - 1]] = (recall.tolist(), precision.tolist())
    page.record.precision_recall = lines
    figure = figures.draw_lines({'': lines}, 'recall', 'precision', unit=True)
    page.add_figure('precision_recall', figure, 'Precision against recall.')


def add_confusion(page: ReportPage, table: np.ndarray, classes: Sequence[str]) -> None:
    """Add the number of objects by true and predicted class."""
    text = 'Objects by true and predicted class, at the best thresholds.'
    page.section('Confusion', text)
    page.record.confusion = table
    figure = figures.draw_matrix({'': table}, [*classes, 'nothing'])
    page.add_figure('confusion', figure, 'Rows: truth.')


def add_calibration(page: ReportPage, outcomes: Outcomes) -> None:
    """Add the fraction of right predictions against the score."""
    page.section(
        'Calibration',
        'A score of 0.8 should be right 8 times of 10: bars below the diagonal are overconfident.',
    )
    ranges = score_ranges(outcomes)
    page.record.calibration = ranges
    figure = figures.draw_calibration({'': ranges})
    page.add_figure('calibration', figure, 'True positives by score, at IoU 0.5.')


def score_ranges(outcomes: Outcomes, bins: int = 10) -> list[ScoreRange]:
    """The predictions in equal ranges of the score, without the empty ones."""
    places = np.minimum((outcomes.score * bins).astype(int), bins - 1)
    ranges = []
    for index in np.unique(places):
        inside = outcomes.where(places == index)
        ranges.append(
            ScoreRange(
                number=len(inside.score),
                score=float(inside.score.mean()),
                right=float(inside.right.mean()),
            )
        )
    return ranges


def add_pictures(page: ReportPage, painter: Painter) -> None:
    """Add the images with the worst and the best F1."""
    ranked = rank_images(painter.matches, [x.path for x in painter.pictures])
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
    is_right = matches.are('right')
    is_wrong = ~matches.are('right', 'ignored')
    is_lost = ~matches.found & ~matches.truth['crowd']
    images = matches.predictions['image']
    right = np.bincount(images[is_right], minlength=len(paths)).tolist()
    wrong = np.bincount(images[is_wrong], minlength=len(paths)).tolist()
    lost = np.bincount(matches.truth['image'][is_lost], minlength=len(paths)).tolist()
    ranked = Ranked()
    for image, path in enumerate(paths):
        numbers = dict(right=right[image], wrong=wrong[image], not_found=lost[image])
        errors = wrong[image] + lost[image]
        if right[image] or errors:
            f1 = right[image] / (right[image] + errors / 2)
            place = (f1, -errors, -right[image])
            ranked.add(
                place,
                dict(
                    image=image,
                    f1=f1,
                    **numbers,
                    path=path,
                ),
            )
    return ranked


def add_crops(page: ReportPage, painter: Painter) -> None:
    """Add small pictures of missed objects and of predictions where nothing is."""
    matches = painter.matches
    missed = matches.truth[matches.missed]
    missed = missed[np.argsort(-missed['area'], kind='stable')]
    wrong = matches.predictions[matches.are('background')]
    for title, name, objects in (
        ('Missed objects (false negatives)', 'missed_objects', missed),
        ('False positives', 'false_positives', wrong),
    ):
        text = f'{len(objects)} at the best thresholds; the first {CROPS} at most.'
        page.section(title, text)
        crops = [Crop(painter.label(item), item) for item in objects[:CROPS]]
        painter.add_crops(page, name, crops, title)
