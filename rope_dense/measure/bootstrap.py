"""Paired comparison of settings over the same images, and the rule that takes one of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .scores import Scores

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
    scores: Scores, baseline: Scores, weights: np.ndarray, comparisons: int = 1
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
        raise ValueError(f'{scores.name} is not defined: the sampled images have no labels')
    tail = (1 - CONFIDENCE) / 2
    low, high, least = np.nanquantile(drawn, [tail, 1 - tail, tail / comparisons])
    least = least if weights.shape[1] >= LEAST_IMAGES else -np.inf
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
