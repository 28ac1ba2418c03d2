"""The weights of a checkpoint that do not fit a model."""

from collections.abc import Collection
from dataclasses import dataclass, field

from torch import Tensor

from .errors import keys_text, short_key
from .keys import StateDict


@dataclass(frozen=True)
class IncompatibleKeys:
    """The keys that do not fit; true if there are any.

    Attributes:
        missing: in the model only.
        left_over: in the checkpoint only.
        mismatched: in both, but of another shape, or integers in place of real numbers; from the
            key to both shapes.
        without_values: on the meta device, of a model that is not.
        not_finite: with NaN or an infinite number.
        axial: frequencies that are axial, of a model that mixes the axes.
    """

    missing: list[str]
    left_over: list[str]
    mismatched: dict[str, tuple[str, str]]
    without_values: list[str]
    not_finite: list[str]
    axial: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(vars(self).values())

    def only_mismatched(self, keys: Collection[str]) -> bool:
        """True if these keys, at least one, have another shape and everything else fits."""
        problems = {name for name, found in vars(self).items() if found}
        return problems == {'mismatched'} and {*self.mismatched} == {*keys}

    def __str__(self) -> str:
        mismatched = [
            f'{short_key(key)} {given} instead of {expected}'
            for key, (given, expected) in self.mismatched.items()
        ]
        groups = {
            'missing': self.missing,
            'left over': self.left_over,
            'of another shape': mismatched,
            'axial, not mixed': self.axial,
            'without values (on the meta device)': self.without_values,
            'not finite (NaN or infinite)': self.not_finite,
        }
        return '\n'.join(f'  {name}: {keys_text(keys)}' for name, keys in groups.items() if keys)


def compare_weights(expected: StateDict, weights: StateDict) -> IncompatibleKeys:
    """Compare weights with the ``expected`` ones of a model.

    Values are read, one tensor at a time, only if keys and shapes fit, and not for a model on the
    meta device.
    """
    both = [key for key in expected if key in weights]
    missing = [key for key in expected if key not in weights]
    left_over = [key for key in weights if key not in expected]
    mismatched = {
        key: (shape_and_type(weights[key]), shape_and_type(expected[key]))
        for key in both
        if weights[key].shape != expected[key].shape
        or weights[key].is_floating_point() != expected[key].is_floating_point()
    }
    readable = [] if missing or left_over or mismatched else both
    return IncompatibleKeys(
        missing,
        left_over,
        mismatched,
        without_values=[
            key for key in readable if weights[key].is_meta and not expected[key].is_meta
        ],
        not_finite=[
            key
            for key in readable
            if not (weights[key].is_meta or expected[key].is_meta or weights[key].isfinite().all())
        ],
    )


def shape_and_type(tensor: Tensor) -> str:
    """Shape of a tensor, and its type unless that is a floating-point one."""
    kind = '' if tensor.is_floating_point() else f' {tensor.dtype}'
    return f'{list(tensor.shape)}{kind}'
