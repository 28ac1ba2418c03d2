"""A threshold with a promise, and a margin of boxes: conformal risk control.

Of n images with objects, or pixels, of a class, the loss of an image at a level is the share of
them that is lost there. At the level that is taken, n / (n + 1) times the mean loss, plus
1 / (n + 1), is at most a share: so is the expected loss of a new image, if it could as well be one
of the n (Angelopoulos et al., "Conformal Risk Control", 2208.02814, theorem 1). Score and margin
have a share each, as in SeqCRC (2505.24038); the margin is of all objects that are found at any
score, so it does not depend on the threshold, and the shares add. Checked by hand and by simulation
in tests/report/test_promise.py.
"""

import math
from collections.abc import Sequence

import numpy as np

from .objects import Matches, corners
from .page import ReportPage
from .record import Promise, Row

# Objects of the truth, or all pixels of a class and a score in an image: [G]. Classes are from 1;
# the score is -inf for what is missed at any; see ``needed_margins``.
FOUND = np.dtype(
    [
        ('label', 'i4'),
        ('image', 'i4'),
        ('size', 'i8'),
        ('score', 'f8'),
        ('margin', 'f8'),
    ]
)
ALL = 'all'  # in the place of a class
TINY = 1e-9  # of rounding
LIMITS = (
    'It holds in expectation: the mean over many sets of images like these, each judged on new '
    'images like them. It does not hold for each image or each set, for another camera, place or '
    'season, or at another image size; nor if the model was trained on these images.'
)
NOT_CHOSEN = (
    'Not if these images chose the checkpoint: --split test or --data has others.'
)


# What is found or missed, and how its thresholds are used.
OBJECTS, PIXELS = 'objects', 'pixels'
USE = {
    OBJECTS: 'predict --score report takes',
    PIXELS: 'the mask of a class has the pixels whose probability, of predict --scores, is at '
    'least',
}


def images_needed(share: float) -> int:
    """Number of images below which no level keeps a share."""
    return math.ceil(1 / share - 1 - TINY)


def promised_level(needs: np.ndarray, found: np.ndarray, share: float) -> float | None:
    """The least level at which a new image loses at most a share, in expectation.

    Args:
        needs: the level below which something is lost, infinite for what always is, [G].
        found: of ``FOUND``, [G].

    Returns:
        None if there is no such level: see ``images_needed``, or too much is always lost.
    """
    weights = shares_of(found)
    order = np.argsort(-needs, kind='stable')
    # Lost at the level of each are those before it, as far as they need more.
    lost = np.cumsum(weights[order]) - weights[order]
    number = len(np.unique(found['image']))
    kept = order[lost <= number * max_loss(number, share) + TINY]
    level = needs[kept].min(initial=np.inf)
    return float(level) if np.isfinite(level) else None


def max_loss(number: int, share: float) -> float:
    """The mean loss of a number of images at a level that keeps a share; below 0: none does."""
    return (share * (number + 1) - 1) / max(number, 1)


def shares_of(found: np.ndarray) -> np.ndarray:
    """The share that each has of the objects, or pixels, of its image, [G]."""
    _, places = np.unique(found['image'], return_inverse=True)
    return found['size'] / np.bincount(places, found['size'])[places]


def found_objects(matches: Matches) -> np.ndarray:
    """The objects of the truth that count, of ``FOUND``.

    An object is missed at the thresholds above its score: predictions of lower scores change no
    match. The margin of one that is not found at any score is 0.
    """
    truth = matches.truth
    found = np.zeros(len(truth), FOUND)
    found['label'] = truth['label']
    found['image'] = truth['image']
    found['size'] = 1
    found['score'] = -np.inf
    places = matches.are('right')
    targets = matches.targets[places]
    right = matches.predictions[places]
    found['score'][targets] = right['score']
    found['margin'][targets] = needed_margins(right['box'], truth['box'][targets])
    return found[~truth['crowd']]


def found_pixels(scores: np.ndarray, truth: np.ndarray, image: int) -> np.ndarray:
    """The pixels of an image, of ``FOUND``.

    Args:
        scores: probability of each class, float16 [K, H, W], which is rounded down to seven bits.
        truth: classes [H, W]; K and above are of none.
    """
    parts = [np.empty(0, FOUND)]
    for label in np.unique(truth[truth < len(scores)]).tolist():
        bits = scores[label][truth == label].view(np.int16) & -8
        values, sizes = np.unique(bits, return_counts=True)
        part = np.zeros(len(values), FOUND)
        part['label'] = label + 1
        part['image'] = image
        part['size'] = sizes
        part['score'] = values.view(np.float16)
        parts.append(part)
    return np.concatenate(parts)


def needed_margins(boxes: np.ndarray, objects: np.ndarray) -> np.ndarray:
    """By how much of its sides, on each of the four, a box [4] has to grow to contain an object."""
    beyond = corners(boxes) - corners(objects)
    beyond[:, 2:] *= -1
    sides = np.tile(np.maximum(boxes[:, 2:], TINY), 2)
    return (beyond / sides).max(1).clip(0)


def add_promise(
    page: ReportPage, found: np.ndarray, classes: Sequence[str], kind: str
) -> None:
    """Add the thresholds that keep ``record.promise``, and its margins, for all and each class.

    ``found`` is of ``FOUND``.
    """
    promise = page.record.promise
    if promise is None:
        return
    for label, name in enumerate([ALL, *classes]):
        chosen = found[found['label'] == label] if label else found
        promise.rows.append(promise_row(name, promise, chosen, kind))
    said = promise_text(promise, kind)
    most = promise.rows[0]['threshold']
    if most is not None:
        said += f' {NOT_CHOSEN}'
        for row in promise.rows[1:]:
            # No class may break the promise of all, nor its own.
            own = row['threshold']
            if own is None:
                own = most
                promise.without.append(row['class'])
            promise.thresholds[row['class']] = min(most, own)
    if promise.without:
        names = ', '.join(promise.without)
        said += f' No threshold of their own: {names}; the one of all is used.'
    print(said)
    page.section(
        'A threshold with a promise',
        f'{said} {LIMITS} Each row counts the images that have such {kind}; {USE[kind]} '
        'the lower threshold of a class and of all.',
    )
    page.add_table(promise.rows)


def promise_row(name: str, promise: Promise, found: np.ndarray, kind: str) -> Row:
    """Threshold and margin of a class, or why there is none."""
    miss = promise.miss
    number = len(np.unique(found['image']))
    level = promised_level(-found['score'], found, miss)
    row: Row = {'class': name, 'images': number, kind: int(found['size'].sum())}
    row['threshold'] = None if level is None else -level
    if promise.margin is not None:
        row['margin'] = promised_level(found['margin'], found, promise.margin)
    needed = images_needed(min(miss, promise.margin or miss))
    row['note'] = ''
    if number < needed:
        row['note'] = f'needs {needed} images with such {kind}'
    elif level is None:
        never = shares_of(found) @ np.isinf(found['score']) / number
        most = max_loss(number, miss)
        row['note'] = f'{never:.3f} are missed at any score, of {most:.3f} that may be'
    return row


def promise_text(promise: Promise, kind: str) -> str:
    """The promise of all classes in a sentence, or why there is none."""
    row = promise.rows[0]
    start = f'--miss {promise.miss:g}: '
    if row['threshold'] is None:
        return f'{start}no threshold keeps it: {row["images"]} images, {row["note"]}.'
    text = (
        f'{start}at score {row["threshold"]:.4f} at most {100 * promise.miss:g} % of the '
        f'{kind} of a new image are missed, in expectation ({row["images"]} images).'
    )
    if promise.margin and row['margin'] is not None:
        text += (
            f' Boxes that grow by {row["margin"]:.3f} of their width or height on each side leave '
            f'at most {100 * promise.margin:g} % found and not contained.'
        )
    return f'{text} {row["note"]}'.strip()
