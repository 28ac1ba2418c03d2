"""Predictions as quantities with bounds, and tables that say which of them held."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import mean

from plan import SEEDS
from scores import Values, counts, spread


@dataclass(frozen=True)
class Check:
    """One quantity of a prediction.

    Attributes:
        prediction: its number in README.md.
        quantity: in words, in points of mIoU.
        values: by seed.
        low, high: expected of the mean. If 0 is outside, the difference has to count, too.
        nothing: no difference that counts is expected, instead of bounds.
    """

    prediction: int
    quantity: str
    values: Values
    low: float = -math.inf
    high: float = math.inf
    nothing: bool = False

    @property
    def held(self) -> bool:
        if self.nothing:
            return not counts(self.values)
        within = self.low <= mean(self.values.values()) <= self.high
        return within and (self.low <= 0 <= self.high or counts(self.values))

    @property
    def expected(self) -> str:
        if self.nothing:
            return 'no difference'
        if math.isinf(self.high):
            return f'at least {self.low:.3g}'
        if math.isinf(self.low):
            return f'at most {self.high:.3g}'
        return f'{self.low:.3g} to {self.high:.3g}'

    @property
    def deviation(self) -> str:
        centre = mean(self.values.values())
        return f'{self.quantity}: {centre:+.1f}, expected {self.expected}'


def table(checks: Iterable[Check]) -> list[str]:
    """Lines of a markdown table of all quantities that are known."""
    lines = ['| | quantity (points) | mean | range | expected | held |']
    lines.append('|--:|---|--:|--:|---|---|')
    for check in known(checks):
        held = 'yes' if check.held else 'no'
        if len(check.values) < len(SEEDS):
            held += f' ({len(check.values)} of {len(SEEDS)} seeds)'
        centre, width = mean(check.values.values()), spread(check.values)
        lines.append(
            f'| {check.prediction} | {check.quantity} | {centre:+.1f} | {width:.1f} | '
            f'{check.expected} | {held} |'
        )
    return lines


def summary(checks: Iterable[Check]) -> list[str]:
    """Lines of a markdown table of the predictions."""
    lines = ['| prediction | held, of its quantities | not held |', '|--:|---|---|']
    every = list(checks)
    for number in sorted({check.prediction for check in every}):
        of_number = [check for check in known(every) if check.prediction == number]
        failed = [check.deviation for check in of_number if not check.held]
        held = (
            f'{len(of_number) - len(failed)} of {len(of_number)}'
            if of_number
            else 'not known'
        )
        lines.append(f'| {number} | {held} | {"; ".join(failed)} |')
    return lines


def known(checks: Iterable[Check]) -> list[Check]:
    """The quantities of which there are results, in the order of the predictions."""
    found = [check for check in checks if check.values]
    return sorted(found, key=lambda check: check.prediction)
