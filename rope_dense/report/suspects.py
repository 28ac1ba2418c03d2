"""Labels that a confident prediction contradicts, most suspect first."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pycocotools import mask as coco_mask

from ..measure.results import cell_text
from .matching import FOREGROUND, KINDS, NOTHING, Matches
from .objects import by_image, item_of
from .page import Page
from .painter import Painter

LEAST = 0.25  # suspicion of a label that is listed
SHOWN = 24
COLUMNS = ('rank', 'suspicion', 'kind', 'label', 'prediction', 'IoU', 'file', 'label box', 'box')
MEANING = (
    'Labels (blue) that a prediction or a second label (yellow) contradicts; suspicion is 0 to 1. '
    'missing: no label is near. class: the label has another class. box: the box of the label is '
    'loose or shifted. double: two labels for one object. Look first: the model may be wrong.'
)


class Suspect(NamedTuple):
    """A suspect label."""

    suspicion: float  # score of the prediction, less as far as other labels explain it
    kind: str  # missing, class, box, or double
    label: dict | None  # None where one is missing
    other: dict  # the prediction, or another label of the object
    overlap: float  # IoU of the two; of a missing label, with the nearest one


def find_suspects(matches: Matches, masks: bool = False) -> list[Suspect]:
    """The suspect labels among the truth of matches; each label or place once.

    Matches are of predictions of any score; masks rather than boxes may be compared.
    """
    key, is_right = 'segmentation' if masks else 'bbox', matches.are('right')
    found = np.zeros(len(matches.truth))  # scores of right predictions
    found[matches.targets[is_right]] = matches.predictions['score'][is_right]
    judged = (matches.predictions['score'] >= LEAST) & ~matches.are('ignored', 'duplicate')
    labels, predictions = by_image(matches.truth), by_image(matches.predictions)
    suspects: list[Suspect] = []
    for image in sorted({*labels, *predictions}):
        places = labels.get(image, NOTHING).tolist()
        truth = {x: item_of(matches.truth, x) for x in places if not matches.truth['crowd'][x]}
        items = [*truth.values()]
        of_image = find_doubles(items, found, key)
        for place in predictions.get(image, NOTHING):
            if judged[place]:
                item, label = item_of(matches.predictions, place), truth.get(matches.targets[place])
                near = overlaps_of(item, items, key).max(initial=0.0)
                kind = KINDS[matches.kinds[place]]
                of_image.append(suspect(kind, item, label, near, found, key))
        suspects += once(of_image, key)
    return sorted(suspects, key=lambda one: -one.suspicion)


def find_doubles(labels: Sequence[dict], found: np.ndarray, key: str) -> list[Suspect]:
    """Pairs of labels of one image and class that may be of one object."""
    doubles = []
    for number, first in enumerate(labels):
        rest = labels[number + 1 :]
        others = [item for item in rest if item['category_id'] == first['category_id']]
        for second, overlap in zip(others, overlaps_of(first, others, key), strict=True):
            weak, strong = sorted((first, second), key=lambda item: found[item['id']])
            doubt = found[strong['id']] * (1 - found[weak['id']])
            if overlap >= FOREGROUND:
                doubles.append(Suspect(doubt * overlap, 'double', weak, strong, overlap))
    return doubles


def once(suspects: Sequence[Suspect], key: str) -> list[Suspect]:
    """Those of one image that are listed: the most suspect of each label, or of each place."""
    kept: dict[object, Suspect] = {}
    missing: list[dict] = []
    for one in sorted(suspects, key=lambda one: -one.suspicion):
        if one.suspicion < LEAST:
            break
        if one.label:
            kept.setdefault(one.label['id'], one)
        elif overlaps_of(one.other, missing, key).max(initial=0.0) < FOREGROUND:
            missing.append(one.other)
            kept[-len(missing)] = one
    return [*kept.values()]


def suspect(
    kind: str, item: dict, label: dict | None, near: float, found: np.ndarray, key: str
) -> Suspect:
    """The fault of a label by a prediction of a kind, whose IoU with the nearest label is `near`.

    ``found`` has the scores of right predictions, by the labels that they found.
    """
    score, rival = item['score'], found[label['id']] if label else 0.0  # what found the label
    if label and kind == 'class':
        return Suspect(score * (1 - rival), 'class', label, item, near)
    if label and (kind == 'right' or not rival):
        overlap = overlaps_of(item, [label], key)[0]
        return Suspect(score * (1 - overlap), 'box', label, item, overlap)
    return Suspect(score * max(0.0, 1 - near / FOREGROUND), 'missing', None, item, near)


def overlaps_of(item: dict, others: Sequence[dict], key: str) -> np.ndarray:
    """IoU [N] of an object with others."""
    rows = coco_mask.iou([item[key]], [x[key] for x in others], [0] * len(others))
    return np.asarray(rows, float).reshape(-1)


def add_suspects(page: Page, painter: Painter, suspects: Sequence[Suspect]) -> None:
    """Add the first suspects, with crops, and write all of them to suspects.csv beside the page."""
    rows, crops, text = [], [], io.StringIO()
    writer = csv.writer(text, lineterminator='\n')
    writer.writerow(COLUMNS)
    for rank, (suspicion, kind, label, other, overlap) in enumerate(suspects, start=1):
        names = [painter.label(item) if item else '' for item in (label, other)]
        sides = (item['bbox'] if item else () for item in (label, other))
        boxes = [' '.join(f'{value:.1f}' for value in box) for box in sides]
        path = painter.images[other['image_id']]['path']
        row = [rank, round(suspicion, 3), kind, *map(cell_text, names), round(overlap, 3)]
        writer.writerow([*row, cell_text(path), *boxes])
        if rank <= SHOWN:
            rows.append(dict(zip(COLUMNS, [*row, Path(path).name], strict=False)))
            crops.append((f'{rank}. {kind}\n{names[1]}', other, label))
    page.files['suspects.csv'] = text.getvalue().encode('utf-8', 'surrogateescape')
    page.section('Suspect labels', f'{MEANING} All {len(suspects)} are in suspects.csv.')
    page.add_table('suspects', rows)
    painter.add_crops(page, 'suspect_labels', crops, 'Suspect labels, by rank.')
