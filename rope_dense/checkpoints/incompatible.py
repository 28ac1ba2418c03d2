"""What keeps the weights of a checkpoint from being loaded into a model."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import Tensor

from .keys import StateDict


@dataclass(frozen=True)
class IncompatibleKeys:
    """The keys that keep a checkpoint from being loaded; true if there are any.

    Attributes:
        missing: in the model only.
        left_over: in the checkpoint only.
        mismatched: in both, but of another shape, or integers; from the key to both shapes.
        not_finite: with NaN or an infinite number.
        axial: frequencies that are axial, of a model that mixes the axes.
    """

    missing: list[str]
    left_over: list[str]
    mismatched: dict[str, tuple[str, str]]
    not_finite: list[str]
    axial: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(vars(self).values())

    def __str__(self) -> str:
        mismatched = [
            f'{key} {given} instead of {expected}'
            for key, (given, expected) in self.mismatched.items()
        ]
        groups = {
            'missing': self.missing,
            'left over': self.left_over,
            'of another shape': mismatched,
            'axial, not mixed': self.axial,
            'not finite (NaN or infinite)': self.not_finite,
        }
        return '\n'.join(f'  {name}: {listed(keys)}' for name, keys in groups.items() if keys)


def compare(expected: StateDict, weights: StateDict) -> IncompatibleKeys:
    """What of the weights does not fit those that a model expects."""
    both = [key for key in expected if key in weights]
    return IncompatibleKeys(
        missing=[key for key in expected if key not in weights],
        left_over=[key for key in weights if key not in expected],
        mismatched={
            key: (describe(weights[key]), describe(expected[key]))
            for key in both
            if weights[key].shape != expected[key].shape or not weights[key].is_floating_point()
        },
        not_finite=[key for key in both if not is_finite(weights[key])],
    )


def is_finite(tensor: Tensor) -> bool:
    """Whether all numbers are finite, as far as there are any (not on the meta device)."""
    return tensor.is_meta or bool(tensor.isfinite().all())


def describe(tensor: Tensor) -> str:
    kind = '' if tensor.is_floating_point() else f' {tensor.dtype}'
    return f'{list(tensor.shape)}{kind}'


def listed(keys: Iterable[str]) -> str:
    """All keys, those that differ in numbers between dots together."""
    groups = defaultdict(list)
    for key in keys:
        groups[re.sub(r'(?<=\.)\d+(?=\.)', '*', key)].append(key)
    return ', '.join(
        members[0] if len(members) == 1 else f'{group} ({len(members)} times)'
        for group, members in groups.items()
    )
