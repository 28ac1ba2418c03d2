"""A threshold with a promise, and a margin of boxes: conformal risk control.

Of n images with objects, the loss of an image at a level is the share of its objects that are
lost there. At the level that is taken, n / (n + 1) times the mean loss, plus 1 / (n + 1), is at
most a share: so is the expected loss of a new image, if it could as well be one of the n
(Angelopoulos et al., "Conformal Risk Control", 2208.02814, theorem 1). Score and margin have a
share each, as in SeqCRC (2505.24038); the margin is of all objects that are found at any score, so
it does not depend on the threshold, and the shares add. Checked by hand and by simulation in
tests/report/test_promise.py.
"""

import math
from collections.abc import Sequence

import numpy as np

from .objects import Matches, corners
from .page import ReportPage
from .record import Promise, Row

ALL = 'all'  # in the place of a class
TINY = 1e-9  # of rounding
LIMITS = (
    'It holds in expectation: the mean over many sets of images like these, each judged on new '
    'images like them. It does not hold for each image or each set, for another camera, place or '
    'season, or at another image size; nor if the model was trained, or its checkpoint chosen, on '
    'these images (--split test and --data name others).'
)


def images_needed(share: float) -> int:
    """Number of images below which no level keeps a share."""
    return math.ceil(1 / share - 1 - TINY)


def promised_level(needs: np.ndarray, images: np.ndarray, share: float) -> float | None:
    """The least level at which a new image loses at most a share of its objects, in expectation.

    Args:
        needs: the level below which an object is lost, infinite for one that always is, [G].
        images: the image of each object, [G].

    Returns:
        None if there is no such level: see ``images_needed``, or too many are always lost.
    """
    weights = shares_of(images)
    order = np.argsort(-needs, kind='stable')
    # Lost at the level of each object are those before it, as far as they need more.
    lost = np.cumsum(weights[order]) - weights[order]
    number = len(np.unique(images))
    kept = order[lost <= number * max_loss(number, share) + TINY]
    level = needs[kept].min(initial=np.inf)
    return float(level) if np.isfinite(level) else None


def max_loss(number: int, share: float) -> float:
    """The mean loss of a number of images at a level that keeps a share; below 0: none does."""
    return (share * (number + 1) - 1) / max(number, 1)


def shares_of(images: np.ndarray) -> np.ndarray:
    """The share that each object has of the objects of its image, [G]."""
    _, places, counts = np.unique(images, return_inverse=True, return_counts=True)
    return 1 / counts[places]


def found_scores(matches: Matches) -> np.ndarray:
    """The score with which each object is found, or -inf, [G].

    An object is missed at the thresholds above: predictions of lower scores change no match.
    """
    places = matches.are('right')
    scores = np.full(len(matches.truth), -np.inf)
    scores[matches.targets[places]] = matches.predictions['score'][places]
    return scores


def needed_margins(matches: Matches) -> np.ndarray:
    """By how much of its sides the box of each object has to grow to contain it, [G].

    On each of the four sides; 0 for an object that is not found at any score.
    """
    places = matches.are('right')
    targets = matches.targets[places]
    boxes = matches.predictions['box'][places]
    beyond = corners(boxes) - corners(matches.truth['box'][targets])
    beyond[:, 2:] *= -1
    sides = np.tile(np.maximum(boxes[:, 2:], TINY), 2)
    margins = np.zeros(len(matches.truth))
    margins[targets] = (beyond / sides).max(1).clip(0)
    return margins


def add_promise(page: ReportPage, matches: Matches, classes: Sequence[str]) -> None:
    """Add the thresholds that keep ``record.promise``, and its margins, for all and each class."""
    promise = page.record.promise
    if promise is None:
        return
    truth = matches.truth
    scores = found_scores(matches)
    margins = needed_margins(matches)
    counted = ~truth['crowd']
    for label, name in enumerate([ALL, *classes]):
        chosen = counted & (truth['label'] == label) if label else counted
        promise['rows'].append(
            promise_row(
                name, promise, scores[chosen], margins[chosen], truth['image'][chosen]
            )
        )
    most = promise['rows'][0]['threshold']
    if most is not None:
        for row in promise['rows'][1:]:
            # No class may break the promise of all objects, nor its own.
            own = most if row['threshold'] is None else row['threshold']
            promise['thresholds'][row['class']] = min(most, own)
    said = promise_text(promise)
    print(said)
    page.section(
        'A threshold with a promise',
        f'{said} {LIMITS} Each row counts the images that have such objects; predict --score '
        'report takes the lower threshold of a class and of all.',
    )
    page.add_table(promise['rows'])


def promise_row(
    name: str,
    promise: Promise,
    scores: np.ndarray,
    margins: np.ndarray,
    images: np.ndarray,
) -> Row:
    """Threshold and margin of a class, or why there is none; arrays of its objects, [G]."""
    miss = promise['miss']
    number = len(np.unique(images))
    level = promised_level(-scores, images, miss)
    row: Row = {'class': name, 'images': number, 'objects': len(images)}
    row['threshold'] = None if level is None else -level
    if promise['margin'] is not None:
        row['margin'] = promised_level(margins, images, promise['margin'])
    needed = images_needed(min(miss, promise['margin'] or miss))
    row['note'] = ''
    if number < needed:
        row['note'] = f'needs {needed} images with such objects'
    elif level is None:
        never = shares_of(images) @ np.isinf(scores) / number
        most = max_loss(number, miss)
        row['note'] = f'{never:.3f} are missed at any score, of {most:.3f} that may be'
    return row


def promise_text(promise: Promise) -> str:
    """The promise of all objects in a sentence, or why there is none."""
    row = promise['rows'][0]
    start = f'--miss {promise["miss"]:g}: '
    if row['threshold'] is None:
        return f'{start}no threshold keeps it: {row["images"]} images, {row["note"]}.'
    text = (
        f'{start}at score {row["threshold"]:.4f} at most {100 * promise["miss"]:g} % of the '
        f'objects of a new image are missed, in expectation ({row["images"]} images).'
    )
    if promise['margin'] and row['margin'] is not None:
        text += (
            f' Boxes that grow by {row["margin"]:.3f} of their width or height on each side leave '
            f'at most {100 * promise["margin"]:g} % found and not contained.'
        )
    return f'{text} {row["note"]}'.strip()
