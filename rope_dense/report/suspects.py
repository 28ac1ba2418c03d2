"""Labels that a confident prediction contradicts, most suspect first."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..measure.results import cell_text
from .objects import FOREGROUND, KINDS, NOTHING, Matches, Objects, by_image, overlaps
from .page import Page
from .painter import Painter

LEAST = 0.25  # suspicion of a label that is listed
SHOWN = 24
COLUMNS = (
    'rank',
    'suspicion',
    'kind',
    'label',
    'prediction',
    'IoU',
    'file',
    'label box',
    'box',
)
MEANING = (
    'Labels (blue) that a prediction or a second label (yellow) contradicts; suspicion is 0 to 1. '
    'missing: no label is near. class: the label has another class. box: the box of the label is '
    'loose or shifted. double: two labels for one object. Look first: the model may be wrong.'
)


class Suspect(NamedTuple):
    """A suspect label."""

    suspicion: float  # score of the prediction, less as far as other labels explain it
    kind: str  # missing, class, box, or double
    label: Any  # of ``Objects``; None where one is missing
    other: Any  # the prediction, or another label of the object
    overlap: float  # IoU of the two; of a missing label, with the nearest one


def find_suspects(matches: Matches, masks: bool = False) -> list[Suspect]:
    """The suspect labels among the truth of matches; each label or place once.

    Matches are of predictions of any score; masks rather than boxes may be compared.
    """
    truth, is_right = matches.truth, matches.are('right')
    found = np.zeros(len(truth))  # scores of right predictions
    found[matches.targets[is_right]] = matches.predictions['score'][is_right]
    judged = (matches.predictions['score'] >= LEAST) & ~matches.are(
        'ignored', 'duplicate'
    )
    judged = np.flatnonzero(judged)
    labels, predictions = by_image(truth), by_image(matches.predictions[judged])
    suspects: list[Suspect] = []
    for image in sorted({*labels, *predictions}):
        chosen, places = (
            judged[predictions.get(image, NOTHING)],
            labels.get(image, NOTHING),
        )
        places = places[~truth['crowd'][places]]
        rows = overlaps(matches.predictions[chosen], truth[places], masks)
        of_image = []
        for place, row in zip(chosen, rows, strict=True):
            overlap = row[places == matches.targets[place]].max(initial=0.0)
            of_image.append(
                suspect(matches, place, row.max(initial=0.0), overlap, found)
            )
        of_image += find_doubles(truth[places], found[places], masks)
        suspects += once(of_image, masks)
    return sorted(suspects, key=lambda one: -one.suspicion)


def suspect(
    matches: Matches, place: int, near: float, overlap: float, found: np.ndarray
) -> Suspect:
    """The fault of a label by the prediction of a place.

    Args:
        near, overlap: IoU with the nearest label, and with the label that it is about.
        found: scores of right predictions, by the labels that they found.
    """
    item, target = matches.predictions[place], matches.targets[place]
    kind, score = KINDS[matches.kinds[place]], item['score']
    if target >= 0 and kind == 'class':
        return Suspect(
            score * (1 - found[target]), 'class', matches.truth[target], item, near
        )
    if target >= 0 and (kind == 'right' or not found[target]):
        return Suspect(
            score * (1 - overlap), 'box', matches.truth[target], item, overlap
        )
    return Suspect(score * max(0.0, 1 - near / FOREGROUND), 'missing', None, item, near)


def find_doubles(labels: Objects, found: np.ndarray, masks: bool) -> list[Suspect]:
    """Pairs of labels of one image and class that may be of one object."""
    rows, doubles = np.triu(overlaps(labels, labels, masks), 1), []
    rows[labels['label'][:, None] != labels['label']] = 0.0
    for first, second in np.argwhere(rows >= FOREGROUND):
        weak, strong = sorted((first, second), key=lambda place: found[place])
        overlap = rows[first, second]
        doubt = found[strong] * (1 - found[weak]) * overlap
        doubles.append(Suspect(doubt, 'double', labels[weak], labels[strong], overlap))
    return doubles


def once(suspects: Sequence[Suspect], masks: bool) -> list[Suspect]:
    """Those of one image that are listed: the most suspect of each label, or of each place."""
    kept: dict[object, Suspect] = {}
    missing = list[Any]()
    for one in sorted(suspects, key=lambda one: -one.suspicion):
        if one.suspicion < LEAST:
            break
        if one.label is not None:
            kept.setdefault(one.label['id'], one)
            continue
        places = np.array([*missing, one.other])
        if overlaps(places[-1:], places[:-1], masks).max(initial=0.0) < FOREGROUND:
            missing.append(one.other)
            kept[-len(missing)] = one
    return [*kept.values()]


def add_suspects(page: Page, painter: Painter, suspects: Sequence[Suspect]) -> None:
    """Add the first suspects, with crops, and write all of them to suspects.csv beside the page."""
    rows, crops, text = [], [], io.StringIO()
    writer = csv.writer(text, lineterminator='\n')
    writer.writerow(COLUMNS)
    for rank, (suspicion, kind, label, other, overlap) in enumerate(suspects, start=1):
        names = ['' if item is None else painter.label(item) for item in (label, other)]
        sides = (() if item is None else item['box'] for item in (label, other))
        boxes = [' '.join(f'{value:.1f}' for value in box) for box in sides]
        path = painter.images[other['image']]['path']
        row = [
            rank,
            round(suspicion, 3),
            kind,
            *map(cell_text, names),
            round(overlap, 3),
        ]
        writer.writerow([*row, cell_text(path), *boxes])
        if rank <= SHOWN:
            rows.append(dict(zip(COLUMNS, [*row, Path(path).name], strict=False)))
            crops.append((f'{rank}. {kind}\n{names[1]}', other, label))
    page.files['suspects.csv'] = text.getvalue().encode('utf-8', 'surrogateescape')
    page.section(
        'Suspect labels', f'{MEANING} All {len(suspects)} are in suspects.csv.'
    )
    page.add_table('suspects', rows)
    painter.add_crops(page, 'suspect_labels', crops, 'Suspect labels, by rank.')
