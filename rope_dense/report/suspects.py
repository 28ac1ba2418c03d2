"""Labels that a confident prediction contradicts, most suspect first."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..measure.results import cell_text
from .objects import FOREGROUND, KINDS, NOTHING, Matches, Objects, by_image, overlaps
from .page import ReportPage
from .painter import Crop, Painter

LEAST = 0.25  # suspicion of a label that is listed
SHOWN = 24
COLUMNS = 'rank,suspicion,kind,label,prediction,IoU,file,label box,box'.split(',')
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
    truth = matches.truth
    predictions = matches.predictions
    is_right = matches.are('right')
    found = np.zeros(len(truth))  # scores of right predictions
    found[matches.targets[is_right]] = predictions['score'][is_right]
    is_judged = ~matches.are('ignored', 'duplicate') & (predictions['score'] >= LEAST)
    judged = np.flatnonzero(is_judged)
    labels = by_image(truth)
    in_judged = by_image(predictions[judged])
    suspects = []
    for image in sorted({*labels, *in_judged}):
        chosen = judged[in_judged.get(image, NOTHING)]
        places = labels.get(image, NOTHING)
        places = places[~truth['crowd'][places]]
        rows = overlaps(predictions[chosen], truth[places], masks)
        of_image = []
        for place, row in zip(chosen, rows, strict=True):
            near = row.max(initial=0.0)
            overlap = row[places == matches.targets[place]].max(initial=0.0)
            of_image.append(suspect(matches, place, near, overlap, found))
        of_image += find_doubles(truth[places], found[places], masks)
        suspects += once(of_image, masks)
    return sorted(suspects, key=lambda one: -one.suspicion)


def suspect(
    matches: Matches,
    place: int,
    near: float,
    overlap: float,
    found: np.ndarray,
) -> Suspect:
    """The fault of a label by the prediction of a place.

    Args:
        near, overlap: IoU with the nearest label, and with the label that it is about.
        found: scores of right predictions, by the labels that they found.
    """
    item = matches.predictions[place]
    target = matches.targets[place]
    kind = KINDS[matches.kinds[place]]
    score = item['score']
    if target >= 0:
        label = matches.truth[target]
        if kind == 'class':
            doubt = score * (1 - found[target])
            return Suspect(doubt, 'class', label, item, near)
        if kind == 'right' or not found[target]:
            return Suspect(score * (1 - overlap), 'box', label, item, overlap)
    return Suspect(score * max(0.0, 1 - near / FOREGROUND), 'missing', None, item, near)


def find_doubles(labels: Objects, found: np.ndarray, masks: bool) -> list[Suspect]:
    """Pairs of labels of one image and class that may be of one object."""
    doubles = []
    rows = np.triu(overlaps(labels, labels, masks), 1)
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
    missing: list[Any] = []
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


def add_suspects(
    page: ReportPage,
    painter: Painter,
    suspects: Sequence[Suspect],
) -> None:
    """Add the first suspects, with crops, and write all of them to suspects.csv beside the page."""
    rows = []
    crops = []
    text = io.StringIO()
    writer = csv.writer(text, lineterminator='\n')
    writer.writerow(COLUMNS)
    for rank, (suspicion, kind, label, other, overlap) in enumerate(suspects, start=1):
        path = painter.pictures[other['image']].path
        prediction = painter.label(other)
        cells = [
            rank,
            round(suspicion, 3),
            kind,
            '' if label is None else cell_text(painter.label(label)),
            cell_text(prediction),
            round(overlap, 3),
        ]
        boxes = ['' if label is None else box_text(label), box_text(other)]
        writer.writerow([*cells, cell_text(path), *boxes])
        if rank <= SHOWN:
            rows.append(dict(zip(COLUMNS, [*cells, Path(path).name], strict=False)))
            crops.append(Crop(f'{rank}. {kind}\n{prediction}', other, label))
    page.files['suspects.csv'] = text.getvalue().encode('utf-8', 'surrogateescape')
    page.section(
        'Suspect labels',
        f'{MEANING} All {len(suspects)} are in suspects.csv.',
    )
    page.add_table(rows)
    page.record.suspects = rows
    painter.add_crops(page, 'suspect_labels', crops, 'Suspect labels, by rank.')


def box_text(item: Any) -> str:
    """The box of an object, in pixels."""
    return ' '.join(f'{value:.1f}' for value in item['box'])
