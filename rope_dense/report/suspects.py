"""Labels that a confident prediction contradicts, most suspect first."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pycocotools import mask as coco_mask

from ..utils.atomic_write import atomic_write_text
from . import figures
from .matching import FOREGROUND, JudgedPrediction, Matches
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
    key = 'segmentation' if masks else 'bbox'
    right = (match for match in matches.predictions if match.kind == 'right')
    found = {match.truth['id']: match.prediction['score'] for match in right if match.truth}
    labels: dict[int, list[dict]] = {}
    for item in matches.truth:
        labels.setdefault(item['image_id'], []).append(item)
    suspects: list[Suspect] = []
    for match in matches.predictions:
        if match.prediction['score'] >= LEAST and match.kind not in ('ignored', 'duplicate'):
            near = overlaps_of(match.prediction, labels.get(match.prediction['image_id'], ()), key)
            suspects.append(suspect(match, near.max(initial=0.0), found, key))
    for first in matches.truth:
        rest = (x for x in labels[first['image_id']] if x['category_id'] == first['category_id'])
        others = [item for item in rest if item['id'] > first['id']]
        for second, overlap in zip(others, overlaps_of(first, others, key), strict=True):
            weak, strong = sorted((first, second), key=lambda item: found.get(item['id'], 0.0))
            doubt = found.get(strong['id'], 0.0) * (1 - found.get(weak['id'], 0.0))
            if overlap >= FOREGROUND:
                suspects.append(Suspect(doubt * overlap, 'double', weak, strong, overlap))
    kept: dict[object, Suspect] = {}
    places: dict[int, list[dict]] = {}  # of missing labels
    for one in sorted(suspects, key=lambda one: -one.suspicion):
        if one.label:
            kept.setdefault(one.label['id'], one)
            continue
        rivals = places.setdefault(one.other['image_id'], [])
        if overlaps_of(one.other, rivals, key).max(initial=0.0) < FOREGROUND:
            rivals.append(one.other)
            kept[id(one.other)] = one
    return [one for one in kept.values() if one.suspicion >= LEAST]


def suspect(match: JudgedPrediction, near: float, found: dict[int, float], key: str) -> Suspect:
    """The fault of a label by a prediction whose IoU with the nearest label is `near`.

    ``found`` has the scores of right predictions, by the labels that they found.
    """
    item, label, score = match.prediction, match.truth, match.prediction['score']
    rival = found.get(label['id'], 0.0) if label else 0.0  # what already found the label
    if label and match.kind == 'class':
        return Suspect(score * (1 - rival), 'class', label, item, near)
    if label and (match.kind == 'right' or not rival):
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
        row = [rank, round(suspicion, 3), kind, *names, round(overlap, 3)]
        writer.writerow([*row, path, *boxes])
        if rank <= SHOWN:
            rows.append(dict(zip(COLUMNS, [*row, Path(path).name], strict=False)))
            crops.append((painter.crop(other, label), f'{rank}. {kind}\n{names[1]}'))
    atomic_write_text(page.out / 'suspects.csv', text.getvalue())
    page.section('Suspect labels', f'{MEANING} All {len(suspects)} are in suspects.csv.')
    page.add_table('suspects', rows)
    if crops:
        page.add_figure('suspect_labels', figures.draw_grid(crops), 'Suspect labels, by rank.')
