"""Objects of many images, predictions matched to the truth, and the kind of each error.

Objects are rows of one array: as dicts, a million would take a gigabyte. Kinds and their order
are those of TIDE (Bolya et al., "TIDE: A General Toolbox for Identifying Object Detection Errors",
ECCV 2020). N predictions, G objects of the truth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from pycocotools import mask as coco_mask

from ..measure.scores import RECALLS

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
        box = tuple(item.get('bbox', (0, 0, 0, 0)))
        row = (
            item.get('id', 0),
            item['image_id'] if image is None else image,
            item['category_id'],
            box,
            item.get('area', box[2] * box[3]),
            item.get('score', np.nan),
            item.get('iscrowd', 0),
            item.get('segmentation'),
        )
        rows.append(row)
    return np.array(rows, OBJECT)


def by_image(objects: Objects) -> dict[int, np.ndarray]:
    """The places of the objects of each image."""
    order = np.argsort(objects['image'], kind='stable')
    images, starts = np.unique(objects['image'][order], return_index=True)
    places = np.split(order, starts[1:])  # of no objects one, which is empty
    return dict(zip(images.tolist(), places, strict=False))


def overlaps(first: Objects, second: Objects, masks: bool) -> np.ndarray:
    """IoU [N, M] of boxes or masks; of what is crowd, the share of the first that is in it."""
    shapes = [x['mask'].tolist() if masks else x['box'] for x in (first, second)]
    rows = coco_mask.iou(*shapes, second['crowd'].tolist())
    return np.asarray(rows, float).reshape(len(first), len(second))


def corners(boxes: np.ndarray) -> np.ndarray:
    """Left, top, right and bottom of boxes, [N, 4]."""
    return np.hstack([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]])


FOREGROUND = 0.5  # IoU from which an object is found
BACKGROUND = 0.1  # IoU up to which a prediction is of nothing
ERRORS = ('class', 'localisation', 'both', 'duplicate', 'background', 'missed')
# Of predictions, in the order in which they are looked for; ignored: inside a crowd.
KINDS = ('right', 'ignored', 'localisation', 'class', 'duplicate', 'background', 'both')
# COCO's ranges.
AREAS = np.array([(0, 1e10), (0, 32**2), (32**2, 96**2), (96**2, 1e10)])
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
        numbers = [KINDS.index(kind) for kind in kinds if kind in KINDS]
        return np.isin(self.kinds, numbers)

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


class Outcomes(NamedTuple):
    """Predictions, best score first: the class and score of each, and whether it is right."""

    label: np.ndarray
    score: np.ndarray
    right: np.ndarray

    def where(self, chosen: np.ndarray) -> Outcomes:
        """Some of them."""
        return Outcomes(self.label[chosen], self.score[chosen], self.right[chosen])


def match_truth(
    truth: Objects,
    predictions: Objects,
    masks: bool = False,
    limit: int | None = None,
) -> Matches:
    """Match predictions to the truth at IoU 0.5.

    Args:
        masks: are compared rather than boxes.
        limit: best predictions of an image and class that count, see ``box_limit``; None: all.
    """
    objects = by_image(truth)
    counted = predictions[best_per_class(predictions, limit)]
    kinds = np.zeros(len(counted), np.int8)
    targets = np.zeros(len(counted), int)
    verdicts = np.zeros((len(counted), len(AREAS), len(THRESHOLDS)), np.int8)
    for image, found in by_image(counted).items():
        near = objects.get(image, NOTHING)
        of_image = match_image(truth[near], counted[found], masks)
        kinds[found], places, verdicts[found] = of_image
        targets[found] = np.append(near, -1)[places]
    return Matches(counted, kinds, targets, verdicts, truth)


def best_per_class(predictions: Objects, limit: int | None) -> np.ndarray:
    """The places of the predictions that count, best score first."""
    order = np.argsort(-predictions['score'], kind='stable')
    if limit is None:
        return order
    images = predictions['image'][order].astype(int)
    labels = predictions['label'][order]
    groups = images * (labels.max(initial=0) + 1) + labels
    by_group = np.argsort(groups, kind='stable')
    ranks = np.arange(len(order)) - np.searchsorted(groups[by_group], groups[by_group])
    return order[np.sort(by_group[ranks < limit])]


def match_image(
    truth: Objects,
    predictions: Objects,
    masks: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Kinds, targets or -1, and verdicts of the predictions of one image, best score first."""
    rows = overlaps(predictions, truth, masks)
    same = predictions['label'][:, None] == truth['label']
    own = np.where(same & ~truth['crowd'], rows, 0.0)
    other = np.where(~same & ~truth['crowd'], rows, 0.0)
    of_own = own.max(1, initial=0.0)
    of_other = other.max(1, initial=0.0)
    verdicts, targets = judge(truth, predictions, np.where(same, rows, 0.0))
    of_all = verdicts[:, 0, 0]
    cases = (
        of_all == RIGHT,
        of_all == IGNORED,
        (of_own >= BACKGROUND) & (of_own < FOREGROUND),
        of_other >= FOREGROUND,
        of_own >= FOREGROUND,
        np.maximum(of_own, of_other) <= BACKGROUND,
    )
    kinds = np.select(cases, range(len(cases)), len(cases))
    targets[kinds > 0] = -1
    for kind, among in (('localisation', own), ('class', other)):
        places = np.flatnonzero(kinds == KINDS.index(kind))
        if len(places):
            targets[places] = among[places].argmax(1)
    return kinds, targets, verdicts


def judge(
    truth: Objects,
    predictions: Objects,
    rows: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """COCO's verdicts on predictions of one image, best score first, and their objects or -1.

    As pycocotools matches; of equal IoUs the last counts.

    Args:
        rows: IoU of objects of the same class, else 0, [P, G].
    """
    ignored = ignored_by_area(truth)
    targets = np.full(len(predictions), -1)
    unmatched = np.where(ignored_by_area(predictions), IGNORED, WRONG).T
    verdicts = unmatched[..., None].repeat(len(THRESHOLDS), 2)  # [P, 4, 10]
    free = np.ones((len(AREAS), len(THRESHOLDS), len(truth)), bool)
    for place in np.flatnonzero(rows.max(1, initial=0.0) >= FOREGROUND):
        fits = free & (rows[place] >= THRESHOLDS[:, None])
        # An object that counts before an ignored one, then the larger IoU.
        merits = np.where(fits, rows[place] + 2 * ~ignored[:, None], 0.0)
        best = len(truth) - 1 - merits[..., ::-1].argmax(2)
        areas, thresholds = np.nonzero(fits.any(2))
        taken = best[areas, thresholds]
        free[areas, thresholds, taken] = truth['crowd'][taken]
        verdict = np.where(ignored[areas, taken], IGNORED, RIGHT)
        verdicts[place, areas, thresholds] = verdict
        targets[place] = best[0, 0]
    return verdicts, targets


def ignored_by_area(objects: Objects) -> np.ndarray:
    """True for objects that do not count in a range of areas: [4, N]."""
    low, high = AREAS.T[..., None]
    return (objects['area'] < low) | (objects['area'] > high) | objects['crowd']


def fix_errors(
    matches: Matches,
    kinds: Collection[str] = (),
) -> tuple[Outcomes, dict[int, int]]:
    """Outcomes of predictions, and the number of objects of each class, with errors fixed.

    A class or localisation error becomes a right prediction if its object is not found, and no
    such error about the object scores higher; else it is removed, like the other errors. Missed
    objects are no longer counted.
    """
    truth = matches.truth
    labels = matches.predictions['label'].copy()
    is_right = matches.are('right')
    is_removed = matches.are('ignored', *kinds)
    claims = matches.first_claims('class', 'localisation')
    claims = claims[is_removed[claims]]
    labels[claims] = truth['label'][matches.targets[claims]]
    is_right[claims] = True
    is_removed[claims] = False
    outcomes = Outcomes(labels, matches.predictions['score'], is_right)
    counted = ~truth['crowd']
    counts = dict.fromkeys(np.unique(truth['label'][counted]).tolist(), 0)
    if 'missed' in kinds:
        counted &= ~matches.missed
    counts |= Counter(truth['label'][counted].tolist())
    return outcomes.where(~is_removed), counts


def mean_ap(outcomes: Outcomes, counts: dict[int, int]) -> float:
    """Mean over the classes with truth of the average precision at IoU 0.5."""
    values = []
    for label, count in counts.items():
        right = outcomes.right[outcomes.label == label]
        values.append(average_precision(right, count))
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


def best_threshold(outcomes: Outcomes, count: int) -> dict[str, float]:
    """The score with the best F1 of a class, with its F1, precision and recall."""
    scores = outcomes.score
    if not outcomes.right.any():
        return dict(
            threshold=1.0,
            f1=0.0,
            precision=0.0,
            recall=0.0,
        )
    precision, recall = precision_recall(outcomes.right, count)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    f1[:-1][scores[:-1] == scores[1:]] = -1.0  # a threshold does not part equal scores
    at = int(f1.argmax())
    return dict(
        threshold=float(scores[at]),
        f1=float(f1[at]),
        precision=float(precision[at]),
        recall=float(recall[at]),
    )


def confusion(matches: Matches, num_classes: int) -> np.ndarray:
    """Counts [truth, predicted] of classes from 1, with a last row and column for nothing."""
    table = np.zeros((num_classes + 1, num_classes + 1), int)
    columns = matches.predictions['label'] - 1
    labels = matches.truth['label'] - 1
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
