"""Parameters of tests thinned from a product to pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations, product

import pytest


def pairwise(**axes: Mapping[str, object] | Iterable[object]) -> pytest.MarkDecorator:
    """Parametrize a test so that any two values of two axes meet in one of its runs.

    For axes that do not depend on each other: an error that needs three values at once may stay
    hidden. Two axes give their product.

    Args:
        axes: values of each parameter; keys of a mapping are the ids of its values.
    """
    values = [labelled(axis) for axis in axes.values()]
    chosen = [
        [values[axis][index] for axis, index in enumerate(row)] for row in rows(values)
    ]
    params = [
        pytest.param(
            *(value for _, value in row), id='-'.join(label for label, _ in row)
        )
        for row in chosen
    ]
    return pytest.mark.parametrize(', '.join(axes), params)


def labelled(axis: Mapping[str, object] | Iterable[object]) -> list[tuple[str, object]]:
    """Values with their ids."""
    if isinstance(axis, Mapping):
        return [*axis.items()]
    return [(getattr(value, '__name__', str(value)), value) for value in axis]


def rows(axes: list[list[tuple[str, object]]]) -> list[tuple[int, ...]]:
    """Indexes of values in each axis; of all rows the one with most new pairs comes next."""
    candidates = [*product(*(range(len(axis)) for axis in axes))]
    pairs = {row: {*combinations(enumerate(row), 2)} for row in candidates}
    missing, chosen = set().union(*pairs.values()), []
    while missing:
        best = max(candidates, key=lambda row: len(pairs[row] & missing))
        missing -= pairs[best]
        chosen.append(best)
    return chosen
