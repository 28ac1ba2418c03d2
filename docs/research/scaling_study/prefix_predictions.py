"""The predictions of prefix.md as quantities and bounds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from scores import Scores, Values, less
from verdicts import Check

ROPES, PREFIXES = ('axial', 'mixed'), ('class', 'registers', 'relative')


def checks(scores: Scores) -> Iterator[Check]:
    """Quantities of predictions 1 to 7."""
    finer = partial(scores, 'finer')
    for rope in ROPES:
        for prefix in PREFIXES:
            arm = f'{rope}_{prefix}'
            ahead = less(finer(arm, 1), finer(rope, 1))
            yield Check(1, f'at 1: {arm} less {rope}', ahead, low=-1.5, high=1.5)
            ahead = less(finer(arm, 2, 'linear'), finer(arm, 2))
            yield Check(2, f'at 2, {arm}: linear less none', ahead, low=4)
            change = scores.change('finer', arm, 'linear')
            yield Check(2, f'{arm}, linear: change', change, low=-1.5, high=1.5)
        yield from registers(scores, rope)


def registers(scores: Scores, rope: str) -> Iterator[Check]:
    """Registers beside no prefix tokens, and relative registers beside registers."""
    finer = partial(scores, 'finer')
    plain, relative = f'{rope}_registers', f'{rope}_relative'
    ahead = less(finer(plain, 2), finer(rope, 2))
    yield Check(3, f'at 2, none: {plain} less {rope}', ahead, low=-3, high=3)
    ahead = less(finer(plain, 0.5), finer(rope, 0.5))
    yield Check(4, f'at 0.5, none: {plain} less {rope}', ahead, high=-2)
    for factor, how in ((1, 'none'), (2, 'linear')):
        ahead = less(finer(relative, factor, how), finer(plain, factor, how))
        yield Check(
            5, f'at {factor}, {how}: {relative} less {plain}', ahead, low=-1, high=1
        )
    ahead = less(finer(relative, 2), finer(plain, 2))
    yield Check(6, f'at 2, none: {relative} less {plain}', ahead, low=-3, high=3)
    ahead = less(finer(relative, 0.5), finer(plain, 0.5))
    yield Check(7, f'at 0.5, none: {relative} less {plain}', ahead, low=2)


def spreads(of_position: dict[str, Values]) -> Iterator[Check]:
    """Quantities of prediction 8: spreads by position and seed."""
    for rope in ROPES:
        plain, relative = (
            of_position.get(f'{rope}_{name}', {}) for name in PREFIXES[1:]
        )
        shares = {
            s: 100 * relative[s] / plain[s]
            for s in sorted(relative.keys() & plain.keys())
        }
        quantity = f'spread of {rope}_relative in percent of {rope}_registers'
        yield Check(8, quantity, shares, low=0.1, high=50)
