"""Metrics of resampled images, their paired comparison, and the rule that takes a setting.

A metric is a function of how often each image counts, for a bootstrap over images. Letters: I
images, B draws, C classes, T IoU thresholds, n predictions and m right ones of a class. Weights
[B, I] say how often each image is in a draw; they are whole numbers.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RECALLS = np.linspace(0, 1, 101)  # COCO's
VALUES_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class Scores(ABC):
    """A metric of I images.

    Attributes:
        name: of the metric, as in a row of the sweep.
        num_images: I.
        larger_is_better: False for an error.
    """

    name: str
    num_images: int
    larger_is_better: bool

    @abstractmethod
    def metric(self, weights: np.ndarray) -> np.ndarray:
        """The metric [B] of the draws; NaN where it is not defined."""

    @property
    def value(self) -> float:
        """The metric of all images."""
        return float(self.metric(np.ones((1, self.num_images)))[0])


@dataclass(frozen=True)
class ImageMeans(Scores):
    """The mean of values [I] of images, such as 100 for a right class and 0 for a wrong one."""

    values: np.ndarray

    def metric(self, weights: np.ndarray) -> np.ndarray:
        return weights @ self.values / weights.sum(1)


@dataclass(frozen=True)
class MeanIoU(Scores):
    """Mean IoU over classes in per cent, from the sums of their pixels over images.

    Classes that are neither labelled nor predicted in a draw do not count, as in mmseg's metric.

    Attributes:
        intersection, union: pixels [I, C].
    """

    intersection: np.ndarray
    union: np.ndarray

    def metric(self, weights: np.ndarray) -> np.ndarray:
        intersection = weights @ self.intersection  # [B, C]
        union = weights @ self.union  # [B, C]
        return 100 * mean_of_defined(intersection, union)


@dataclass(frozen=True)
class ClassMatches:
    """The predictions of a class that COCO's evaluation matched, best score first.

    Attributes:
        images: index of the image of each prediction [n].
        right: whether it found an object, by threshold [T, n].
        counted: whether it is right or wrong, not ignored [T, n].
        objects: number of objects of each image [I].
    """

    images: np.ndarray
    right: np.ndarray
    counted: np.ndarray
    objects: np.ndarray

    def average_precision(self, weights: np.ndarray) -> np.ndarray:
        """AP [B], the mean over thresholds and recalls; NaN where a draw has no object.

        Precision is largest, and recall grows, at right predictions, so only these are looked at.
        """
        objects = weights @ self.objects  # [B]
        drawn = weights[:, self.images]  # [B, n]
        total = np.zeros(len(weights))
        for right, counted in zip(self.right, self.counted, strict=True):
            places = np.flatnonzero(right)
            found = drawn[:, places].cumsum(1)  # [B, m]
            predicted = (drawn * counted).cumsum(1)[:, places]  # [B, m]
            precision = found / np.maximum(predicted, 1)
            best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
            recall = found / np.maximum(objects, 1)[:, None]
            reached = np.searchsorted(RECALLS, recall, side='right')  # [B, m]
            total += (best * np.diff(reached, axis=1, prepend=0)).sum(1)
        mean = total / (len(self.right) * len(RECALLS))
        return np.where(objects > 0, mean, np.nan)


@dataclass(frozen=True)
class MeanAP(Scores):
    """COCO's mAP: the mean of the classes that have objects in a draw.

    An image that is drawn twice counts as two images; predictions of one image with the same class
    and score keep their order, while pycocotools would alternate them. Checked against mmdet's
    metric of repeated images in tests/measure/test_bootstrap.py.

    Attributes:
        classes: those with objects.
    """

    classes: Sequence[ClassMatches]

    def metric(self, weights: np.ndarray) -> np.ndarray:
        most = max((len(matches.images) for matches in self.classes), default=0)
        step = max(1, VALUES_AT_ONCE // max(1, most))
        parts = []
        for start in range(0, len(weights), step):
            parts.append(self._metric(weights[start : start + step]))
        return np.concatenate(parts)

    def _metric(self, weights: np.ndarray) -> np.ndarray:
        precisions = [matches.average_precision(weights) for matches in self.classes]
        precision = np.array(precisions).reshape(-1, len(weights))  # [C, B]
        has_objects = ~np.isnan(precision)
        return mean_of_defined(np.where(has_objects, precision, 0).T, has_objects.T)


def mean_of_defined(numerators: np.ndarray, denominators: np.ndarray) -> np.ndarray:
    """Means [B] of fractions [B, C] over the classes whose denominator is not 0; NaN if all are."""
    defined = denominators > 0
    fractions = np.where(defined, numerators / np.where(defined, denominators, 1), 0)
    number = defined.sum(1)
    return np.where(number > 0, fractions.sum(1) / np.maximum(number, 1), np.nan)


CONFIDENCE = 0.9
DRAWS = 40  # for each comparison, of which two are below the end of its interval
LEAST_IMAGES = 5  # fewer have hardly a spread: no difference is clear
RULE = (
    "The setting with the best metric replaces the config's own if its paired difference is above "
    f'0 at the lower end of {CONFIDENCE:.0%} intervals that hold for all settings of the size, '
    f'with {LEAST_IMAGES} images or more.'
)


@dataclass(frozen=True)
class Difference:
    """By how much a setting is better than another one on the same images.

    Attributes:
        value: of all images, positive for a better metric.
        low, high: ends of the interval of the draws.
        least: the lower end of an interval that holds for all settings that are compared, which is
            wider: each setting has its part of the error (Bonferroni).
    """

    value: float
    low: float
    high: float
    least: float

    @property
    def is_clear(self) -> bool:
        """True if the wider interval is above 0."""
        return self.least > 0


def draw_images(num_images: int, draws: int, seed: int) -> np.ndarray:
    """Weights [draws, num_images]: as many images as there are, with replacement."""
    generator = np.random.default_rng(seed)
    shares = np.full(num_images, 1 / num_images)
    return generator.multinomial(num_images, shares, size=draws).astype(float)


def compare_settings(
    scores: Scores,
    baseline: Scores,
    weights: np.ndarray,
    comparisons: int = 1,
) -> Difference:
    """The difference of a setting to another one, in draws of the same images.

    Args:
        weights: see ``draw_images``.
        comparisons: settings that are compared, of which the best may be taken.

    Raises:
        ValueError: the metric is not defined, as without labels.
    """
    sign = 1 if scores.larger_is_better else -1
    value = sign * (scores.value - baseline.value)
    drawn = sign * (scores.metric(weights) - baseline.metric(weights))
    if np.isnan(value):
        raise ValueError(
            f'{scores.name} is not defined: the sampled images have no labels'
        )
    tail = (1 - CONFIDENCE) / 2
    low, high, least = np.nanquantile(drawn, [tail, 1 - tail, tail / comparisons])
    if weights.shape[1] < LEAST_IMAGES:
        least = -np.inf
    return Difference(value, float(low), float(high), float(least))


def choose_setting(differences: Sequence[Difference]) -> tuple[int, str]:
    """Index by ``RULE`` of a difference to the config's own setting, the first, and the reason."""
    if len(differences) == 1:
        return 0, 'no other setting at this size'
    best = max(range(len(differences)), key=lambda index: differences[index].value)
    if differences[best].value <= 0:
        return 0, 'no setting is better than the one of the config'
    if differences[best].is_clear:
        return best, 'better than the config beyond the spread over images'
    return 0, 'differences to the config are within the spread over images'
