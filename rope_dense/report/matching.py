"""Predictions matched to the truth, and the kind of each error.

Kinds and their order as in TIDE (Bolya et al., "TIDE: A General Toolbox for Identifying
Object Detection Errors", ECCV 2020). Objects are annotations in COCO's form.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from pycocotools import mask as coco_mask

FOREGROUND, BACKGROUND = 0.5, 0.1  # IoU from which an object is found, up to which it is nothing
ERRORS = ('class', 'localisation', 'both', 'duplicate', 'background', 'missed')
PER_CLASS = 100  # predictions of an image and class that count, as in COCO's evaluation
RECALLS = np.linspace(0, 1, 101)


@dataclass(frozen=True)
class JudgedPrediction:
    """A prediction with its verdict.

    Attributes:
        kind: 'right', 'ignored' (inside a crowd), or one of ``ERRORS`` but 'missed'.
        truth: the object found, or the object that a class or localisation error is about, or None.
    """

    prediction: dict
    kind: str
    truth: dict | None


@dataclass(frozen=True)
class Matches:
    """All predictions with their verdicts, best score first, and the truth.

    Attributes:
        found: ids of the objects that have a right prediction.
        missed: the objects that no prediction found, nor would find with its error fixed.
    """

    predictions: list[JudgedPrediction]
    truth: list[dict]
    found: frozenset[int]
    missed: list[dict]


class Scored(NamedTuple):
    """A prediction of a class, right or not."""

    label: int
    score: float
    right: bool


def match_truth(truth: Sequence[dict], predictions: Iterable[dict], masks: bool = False) -> Matches:
    """Match predictions to the truth at IoU 0.5.

    Args:
        truth: annotations with unique ids; those with ``iscrowd`` are ignored regions.
        predictions: annotations with scores.
        masks: compare masks (run-lengths) rather than boxes.
    """
    by_image: dict[int, tuple[list[dict], list[dict]]] = {}
    for objects, place in ((truth, 0), (predictions, 1)):
        for item in objects:
            by_image.setdefault(item['image_id'], ([], []))[place].append(item)
    matches = [m for pair in by_image.values() for m in match_image(*pair, masks)]
    matches.sort(key=lambda m: -m.prediction['score'])
    objects = [item for item in truth if not item['iscrowd']]
    found = frozenset(m.truth['id'] for m in matches if m.kind == 'right' and m.truth)
    touched = {m.truth['id'] for m in matches if m.truth}
    missed = [item for item in objects if item['id'] not in touched]
    return Matches(matches, objects, found, missed)


def match_image(truth: list[dict], predictions: list[dict], masks: bool) -> list[JudgedPrediction]:
    """Match the predictions of one image, best score first."""
    predictions = best_per_class(predictions)
    if not truth:
        return [JudgedPrediction(item, 'background', None) for item in predictions]
    if not predictions:
        return []
    key = 'segmentation' if masks else 'bbox'
    crowd = np.array([bool(item['iscrowd']) for item in truth])
    overlaps = coco_mask.iou(
        [item[key] for item in predictions], [item[key] for item in truth], crowd.tolist()
    )
    labels = np.array([item['category_id'] for item in truth])
    taken = np.zeros(len(truth), bool)
    matches = []
    for item, row in zip(predictions, np.asarray(overlaps), strict=True):
        same = labels == item['category_id']
        place = largest_overlap(row, same & ~crowd & ~taken)
        if row[place] >= FOREGROUND and (same & ~crowd & ~taken)[place]:
            taken[place] = True
            matches.append(JudgedPrediction(item, 'right', truth[place]))
        elif (row[same & crowd] >= FOREGROUND).any():
            matches.append(JudgedPrediction(item, 'ignored', None))
        else:
            kind, target = error_kind(row, same, ~crowd)
            matches.append(JudgedPrediction(item, kind, None if target is None else truth[target]))
    return matches


def best_per_class(predictions: Iterable[dict]) -> list[dict]:
    """The predictions that count, best score first."""
    seen: dict[int, int] = {}
    kept = []
    for item in sorted(predictions, key=lambda item: -item['score']):
        label = item['category_id']
        seen[label] = seen.get(label, 0) + 1
        if seen[label] <= PER_CLASS:
            kept.append(item)
    return kept


def largest_overlap(overlaps: np.ndarray, among: np.ndarray) -> int:
    """Index of the largest overlap among some objects."""
    return int(np.where(among, overlaps, -1.0).argmax())


def error_kind(overlaps: np.ndarray, same: np.ndarray, real: np.ndarray) -> tuple[str, int | None]:
    """The kind of an error; for class and localisation, the index of the object that it is about.

    Args:
        overlaps: IoU of the prediction with each object of the image.
        same: True for objects of the predicted class.
        real: False for ignored regions.
    """
    own, other = largest_overlap(overlaps, same & real), largest_overlap(overlaps, ~same & real)
    of_own = overlaps[own] if (same & real)[own] else 0.0
    of_other = overlaps[other] if (~same & real)[other] else 0.0
    if BACKGROUND <= of_own < FOREGROUND:
        return 'localisation', own
    if of_other >= FOREGROUND:
        return 'class', other
    if of_own >= FOREGROUND:
        return 'duplicate', None
    return ('background' if max(of_own, of_other) <= BACKGROUND else 'both'), None


def fix_errors(
    matches: Matches, kinds: Collection[str] = ()
) -> tuple[list[Scored], dict[int, int]]:
    """Predictions as scored ones, and the number of objects of each class, with errors fixed.

    A class or localisation error becomes a right prediction if its object is not found, and no
    such error about the object scores higher; else it is removed, like the other errors. Missed
    objects are no longer counted.
    """
    found = set(matches.found)
    scored = []
    for item in matches.predictions:
        label, score = item.prediction['category_id'], item.prediction['score']
        if item.kind == 'ignored':
            continue
        wins = item.truth if item.truth and item.truth['id'] not in found else None
        if wins:
            found.add(wins['id'])
        if item.kind not in kinds:
            scored.append(Scored(label, score, item.kind == 'right'))
        elif wins:
            scored.append(Scored(wins['category_id'], score, True))
    counts = dict.fromkeys((item['category_id'] for item in matches.truth), 0)
    removed = {item['id'] for item in matches.missed} if 'missed' in kinds else set()
    for truth in matches.truth:
        counts[truth['category_id']] += truth['id'] not in removed
    return scored, counts


def mean_ap(scored: Iterable[Scored], counts: dict[int, int]) -> float:
    """Mean over the classes with truth of the average precision at IoU 0.5."""
    by_label: dict[int, list[Scored]] = {label: [] for label in counts}
    for item in scored:
        by_label.setdefault(item.label, []).append(item)
    values = [average_precision(by_label[label], counts[label]) for label in counts]
    return float(np.mean(values)) if values else float('nan')


def average_precision(scored: Sequence[Scored], count: int) -> float:
    """Average precision of one class at 101 recalls; 1 where neither truth nor prediction is."""
    if not count:
        return 0.0 if scored else 1.0
    precision, recall, _ = precision_recall(scored, count)
    if not len(precision):
        return 0.0
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    places = np.searchsorted(recall, RECALLS, side='left')
    return float(np.append(envelope, 0.0)[places].mean())


def precision_recall(
    scored: Sequence[Scored], count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Precision, recall and score after each prediction, best score first."""
    ordered = sorted(scored, key=lambda item: -item.score)
    right = np.cumsum([item.right for item in ordered])
    scores = np.array([item.score for item in ordered])
    return right / np.arange(1, len(ordered) + 1), right / max(count, 1), scores


def error_costs(matches: Matches) -> dict[str, float]:
    """Gain of AP at IoU 0.5 from fixing each kind of error alone."""
    now = mean_ap(*fix_errors(matches))
    return {kind: mean_ap(*fix_errors(matches, (kind,))) - now for kind in ERRORS}


def best_threshold(scored: Sequence[Scored], count: int) -> dict[str, float]:
    """The score with the best F1 of a class, with its F1, precision and recall."""
    precision, recall, scores = precision_recall(scored, count)
    if not len(scores) or not recall[-1]:
        return dict(threshold=1.0, f1=0.0, precision=0.0, recall=0.0)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    f1[:-1][scores[:-1] == scores[1:]] = -1.0  # a threshold does not part equal scores
    at = int(f1.argmax())
    values = dict(threshold=scores[at], f1=f1[at], precision=precision[at], recall=recall[at])
    return {name: float(value) for name, value in values.items()}


def confusion(matches: Matches, num_classes: int) -> np.ndarray:
    """Counts [truth, predicted] of classes from 1, with a last row and column for nothing."""
    table = np.zeros((num_classes + 1, num_classes + 1), int)
    used: set[int] = set(matches.found)
    for item in matches.predictions:
        column, row = item.prediction['category_id'] - 1, num_classes
        if item.kind == 'ignored':
            continue
        if item.truth and item.kind == 'right':
            row = column
        elif item.truth and item.kind == 'class' and item.truth['id'] not in used:
            used.add(item.truth['id'])
            row = item.truth['category_id'] - 1
        table[row, column] += 1
    for truth in matches.truth:
        table[truth['category_id'] - 1, num_classes] += truth['id'] not in used
    return table
