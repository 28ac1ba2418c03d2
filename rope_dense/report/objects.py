"""Objects of many images as rows of one array: as dicts, a million would take a gigabyte.

Predictions matched to the truth, and the kind of each error.

Kinds and their order as in TIDE (Bolya et al., "TIDE: A General Toolbox for Identifying
Object Detection Errors", ECCV 2020). N predictions, G objects of the truth.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from pycocotools import mask as coco_mask

Objects = np.ndarray  # [N] of OBJECT
# Classes are from 1; a box is left, top, width, height; a label has the score NaN; what is crowd is
# ignored; a mask has COCO's run-lengths, or is None.
OBJECT = np.dtype(
    [
        ('id', 'i8'),
        ('image', 'i4'),
        ('label', 'i4'),
        ('box', 'f8', 4),
        ('area', 'f8'),
        ('score', 'f8'),
        ('crowd', '?'),
        ('mask', 'O'),
    ]
)


def objects_of(items: Sequence[dict], image: int | None = None) -> Objects:
    """Annotations of COCO, of one image or of those that they name."""
    rows = []
    for item in items:
        index = item.get('id', 0), item['image_id'] if image is None else image
        box, mask = tuple(item.get('bbox', (0, 0, 0, 0))), item.get('segmentation')
        area, score = item.get('area', box[2] * box[3]), item.get('score', np.nan)
        rows.append(
            (
                *index,
                item['category_id'],
                box,
                area,
                score,
                item.get('iscrowd', 0),
                mask,
            )
        )
    return np.array(rows, OBJECT)


def by_image(objects: Objects) -> dict[int, np.ndarray]:
    """The places of the objects of each image."""
    order = np.argsort(objects['image'], kind='stable')
    images, starts = np.unique(objects['image'][order], return_index=True)
    return dict(
        zip(images.tolist(), np.split(order, starts[1:]), strict=False)
    )  # of none, none


def overlaps(first: Objects, second: Objects, masks: bool) -> np.ndarray:
    """IoU [N, M] of boxes or masks; of what is crowd, the share of the first that is in it."""
    shapes = [x['mask'].tolist() if masks else x['box'] for x in (first, second)]
    rows = coco_mask.iou(*shapes, second['crowd'].tolist())
    return np.asarray(rows, float).reshape(len(first), len(second))


def corners(boxes: np.ndarray) -> np.ndarray:
    """Left, top, right and bottom of boxes, [N, 4]."""
    return np.hstack([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]])


FOREGROUND, BACKGROUND = (
    0.5,
    0.1,
)  # IoU from which an object is found, up to which it is nothing
ERRORS = ('class', 'localisation', 'both', 'duplicate', 'background', 'missed')
# Of predictions, in the order in which they are looked for; ignored: inside a crowd.
KINDS = ('right', 'ignored', 'localisation', 'class', 'duplicate', 'background', 'both')
PER_CLASS = 100  # predictions of an image and class that count, as in COCO's evaluation
RECALLS = np.linspace(0, 1, 101)
AREAS = np.array(
    [(0, 1e10), (0, 32**2), (32**2, 96**2), (96**2, 1e10)]
)  # COCO's ranges
THRESHOLDS = np.linspace(FOREGROUND, 0.95, 10)
WRONG, RIGHT, IGNORED = range(3)
NOTHING = np.array([], int)


@dataclass(frozen=True)
class Matches:
    """The predictions that count with their verdicts, best score first, and the truth.

    Attributes:
        kinds: places in ``KINDS``, [N].
        targets: place of the object that is found, or that a class or localisation error is about,
            or -1, [N].
        verdicts: COCO's, for each of ``AREAS`` and ``THRESHOLDS``, [N, 4, 10].
    """

    predictions: Objects
    kinds: np.ndarray
    targets: np.ndarray
    verdicts: np.ndarray
    truth: Objects

    def are(self, *kinds: str) -> np.ndarray:
        """True for predictions of some kinds: [N]."""
        return np.isin(
            self.kinds, [KINDS.index(kind) for kind in kinds if kind in KINDS]
        )

    @property
    def found(self) -> np.ndarray:
        """True for the objects that have a right prediction: [G]."""
        return np.isin(np.arange(len(self.truth)), self.targets[self.are('right')])

    @property
    def missed(self) -> np.ndarray:
        """True for the objects that no prediction found, nor would find with its error fixed."""
        return ~np.isin(np.arange(len(self.truth)), self.targets) & ~self.truth['crowd']

    def first_claims(self, *kinds: str) -> np.ndarray:
        """Places of the first prediction of some kinds about each object that is not found."""
        places = np.flatnonzero(self.are(*kinds))
        places = places[~self.found[self.targets[places]]]
        return places[np.unique(self.targets[places], return_index=True)[1]]


class Scored(NamedTuple):
    """Predictions, best score first, by class, score and whether they are right."""

    label: np.ndarray
    score: np.ndarray
    right: np.ndarray

    def where(self, chosen: np.ndarray) -> Scored:
        """Some of them."""
        return Scored(*(column[chosen] for column in self))


def match_truth(truth: Objects, predictions: Objects, masks: bool = False) -> Matches:
    """Match predictions to the truth at IoU 0.5; masks rather than boxes may be compared."""
    objects, places = by_image(truth), best_per_class(predictions)
    kinds, targets = (np.zeros(len(places), dtype) for dtype in (np.int8, int))
    verdicts = np.zeros((len(places), len(AREAS), len(THRESHOLDS)), np.int8)
    counted = predictions[places]
    for image, found in by_image(counted).items():
        near = objects.get(image, NOTHING)
        kinds[found], of_image, verdicts[found] = match_image(
            truth[near], counted[found], masks
        )
        targets[found] = np.append(near, -1)[of_image]
    return Matches(counted, kinds, targets, verdicts, truth)


def best_per_class(predictions: Objects) -> np.ndarray:
    """The places of the predictions that count, best score first."""
    order = np.argsort(-predictions['score'], kind='stable')
    images, labels = (
        predictions['image'][order].astype(int),
        predictions['label'][order],
    )
    groups = images * (labels.max(initial=0) + 1) + labels
    by_group = np.argsort(groups, kind='stable')
    ranks = np.arange(len(order)) - np.searchsorted(groups[by_group], groups[by_group])
    return order[np.sort(by_group[ranks < PER_CLASS])]


def match_image(
    truth: Objects, predictions: Objects, masks: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Kinds, targets or -1, and verdicts of the predictions of one image, best score first."""
    rows = overlaps(predictions, truth, masks)
    same = predictions['label'][:, None] == truth['label']
    own = np.where(same & ~truth['crowd'], rows, 0.0)
    other = np.where(~same & ~truth['crowd'], rows, 0.0)
    of_own, of_other = own.max(1, initial=0.0), other.max(1, initial=0.0)
    verdicts, targets = judge(truth, predictions, np.where(same, rows, 0.0))
    cases = (
        verdicts[:, 0, 0] == RIGHT,
        verdicts[:, 0, 0] == IGNORED,
        (of_own >= BACKGROUND) & (of_own < FOREGROUND),
        of_other >= FOREGROUND,
        of_own >= FOREGROUND,
        np.maximum(of_own, of_other) <= BACKGROUND,
    )
    kinds = np.select(cases, range(len(cases)), len(cases))
    targets[kinds > 0] = -1
    for kind, among in (('localisation', own), ('class', other)):
        places = np.flatnonzero(kinds == KINDS.index(kind))
        targets[places] = [among[place].argmax() for place in places]
    return kinds, targets, verdicts


def judge(
    truth: Objects, predictions: Objects, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """COCO's verdicts on predictions of one image, best score first, and their objects or -1.

    As pycocotools matches; of equal IoUs the first counts.

    Args:
        rows: IoU of objects of the same class, else 0, [P, G].
    """
    ignored, targets = ignored_by_area(truth), np.full(len(predictions), -1)
    unmatched = np.where(ignored_by_area(predictions), IGNORED, WRONG).T
    verdicts = unmatched[..., None].repeat(len(THRESHOLDS), 2)  # [P, 4, 10]
    free = np.ones((*verdicts.shape[1:], len(truth)), bool)  # [4, 10, G]
    for place in np.flatnonzero(rows.max(1, initial=0.0) >= FOREGROUND):
        fits = free & (rows[place] >= THRESHOLDS[:, None])
        # An object that counts before an ignored one, then the larger IoU.
        best = np.where(fits, rows[place] + 2 * ~ignored[:, None], 0.0).argmax(2)
        areas, thresholds = np.nonzero(fits.any(2))
        taken = best[areas, thresholds]
        free[areas, thresholds, taken] = truth['crowd'][taken]
        verdicts[place, areas, thresholds] = np.where(
            ignored[areas, taken], IGNORED, RIGHT
        )
        targets[place] = best[0, 0]
    return verdicts, targets


def ignored_by_area(objects: Objects) -> np.ndarray:
    """True for objects that do not count in a range of areas: [4, N]."""
    low, high = AREAS.T[..., None]
    return (objects['area'] < low) | (objects['area'] > high) | objects['crowd']


def fix_errors(
    matches: Matches, kinds: Collection[str] = ()
) -> tuple[Scored, dict[int, int]]:
    """Predictions as scored ones, and the number of objects of each class, with errors fixed.

    A class or localisation error becomes a right prediction if its object is not found, and no
    such error about the object scores higher; else it is removed, like the other errors. Missed
    objects are no longer counted.
    """
    is_fixed, right = matches.are(*kinds), matches.are('right')
    claims = matches.first_claims('class', 'localisation')
    claims = claims[is_fixed[claims]]
    labels, truth = matches.predictions['label'].copy(), matches.truth
    labels[claims] = truth['label'][matches.targets[claims]]
    right[claims], is_fixed[claims] = True, False
    scored = Scored(labels, matches.predictions['score'], right)
    counted = ~truth['crowd'] & ~(matches.missed & ('missed' in kinds))
    classes = np.unique(truth['label'][~truth['crowd']]).tolist()
    counts = {label: int((truth['label'][counted] == label).sum()) for label in classes}
    return scored.where(~is_fixed & ~matches.are('ignored')), counts


def mean_ap(scored: Scored, counts: dict[int, int]) -> float:
    """Mean over the classes with truth of the average precision at IoU 0.5."""
    rights = {label: scored.right[scored.label == label] for label in counts}
    values = [
        average_precision(rights[label], count) for label, count in counts.items()
    ]
    return float(np.mean(values)) if values else float('nan')


def average_precision(right: np.ndarray, count: int) -> float:
    """Average precision of one class at 101 recalls; 1 where neither truth nor prediction is."""
    if not count:
        return 0.0 if len(right) else 1.0
    precision, recall = precision_recall(right, count)
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    places = np.searchsorted(recall, RECALLS, side='left')
    return float(np.append(envelope, 0.0)[places].mean())


def precision_recall(right: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Precision and recall after each prediction of a class, best score first."""
    found = np.cumsum(right)
    return found / np.arange(1, len(found) + 1), found / max(count, 1)


def error_costs(matches: Matches) -> dict[str, float]:
    """Gain of AP at IoU 0.5 from fixing each kind of error alone."""
    now = mean_ap(*fix_errors(matches))
    return {kind: mean_ap(*fix_errors(matches, (kind,))) - now for kind in ERRORS}


def best_threshold(scored: Scored, count: int) -> dict[str, float]:
    """The score with the best F1 of a class, with its F1, precision and recall."""
    (precision, recall), scores = precision_recall(scored.right, count), scored.score
    if not scored.right.any():
        return dict(threshold=1.0, f1=0.0, precision=0.0, recall=0.0)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    f1[:-1][scores[:-1] == scores[1:]] = -1.0  # a threshold does not part equal scores
    at = int(f1.argmax())
    values = dict(
        threshold=scores[at], f1=f1[at], precision=precision[at], recall=recall[at]
    )
    return {name: float(value) for name, value in values.items()}


def confusion(matches: Matches, num_classes: int) -> np.ndarray:
    """Counts [truth, predicted] of classes from 1, with a last row and column for nothing."""
    table = np.zeros((num_classes + 1, num_classes + 1), int)
    columns, labels = matches.predictions['label'] - 1, matches.truth['label'] - 1
    rows = np.where(matches.are('right'), columns, num_classes)
    claims = matches.first_claims('class')
    rows[claims] = labels[matches.targets[claims]]
    left = ~matches.found & ~matches.truth['crowd']
    left[matches.targets[claims]] = False
    counted = ~matches.are('ignored')
    np.add.at(table, (rows[counted], columns[counted]), 1)
    np.add.at(table[:, num_classes], labels[left], 1)
    return table


def coco_aps(matches: Matches, num_classes: int) -> np.ndarray:
    """COCO's AP [4 areas, classes] for IoU 0.5 to 0.95, and in a last row AP at IoU 0.5.

    NaN where no object is.
    """
    aps = np.full((num_classes, len(AREAS), len(THRESHOLDS)), np.nan)
    counted = ~ignored_by_area(matches.truth)  # [4, G]
    for label in range(1, num_classes + 1):
        verdicts = matches.verdicts[matches.predictions['label'] == label]
        counts = counted[:, matches.truth['label'] == label].sum(1)
        for area, threshold in np.ndindex(aps.shape[1:]):
            if counts[area]:
                verdict = verdicts[:, area, threshold]
                right = verdict[verdict != IGNORED] == RIGHT
                aps[label - 1, area, threshold] = average_precision(right, counts[area])
    return np.concatenate([aps.mean(2).T, aps[:, :1, 0].T])
