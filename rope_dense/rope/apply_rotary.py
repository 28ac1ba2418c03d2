"""The rotation of one tensor, of queries or of keys: for attention that is not of this package.

It needs torch alone. On a GPU it is one launch of a Triton kernel, which takes angles of any type
and computes their cosines and sines; elsewhere complex products, and the definition while tracing.

Letters: B batch, h heads, N tokens, C channels of a head, P rotated channel pairs, 2 P <= C.
Checked in tests/rope/test_apply_rotary.py and tests/rope/test_triton_apply.py against a loop in
float64 over tokens, heads and pairs.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ..utils.tracing import is_tracing
from .kernels import definition
from .rotate import first_usable

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def apply_rotary(x: Tensor, theta: Tensor) -> Tensor:
    """Rotate each channel pair (t, t + P) of each token by its angle.

    (a, b) becomes (a cos - b sin, a sin + b cos); channels from 2 P on stay. Computed in float32,
    or in float64 if ``x`` or ``theta`` is, and rounded once. Backward is the opposite rotation, and
    gives the gradient of ``theta`` if that asks for one. This is the operator "fast-rope" of
    "Revisiting Positional Information in Transformers in the Era of Fused Attention".

    Args:
        x: [B, h, N, C], float16, bfloat16, float32 or float64; any strides.
        theta: [h or 1, N, P], radians, in any of these types.

    Returns:
        A new tensor like ``x``.

    Raises:
        ValueError: the shapes do not fit each other, or the devices differ.
        TypeError: another type.
    """
    check_arguments(x, theta)
    implementation = choose_implementation(x, theta)
    if implementation is None:
        return definition.apply(x, theta)
    return ApplyRotary.apply(x, theta, implementation, False)


def apply_rotary_(x: Tensor, theta: Tensor) -> Tensor:
    """``apply_rotary`` that writes to ``x``, and returns it.

    The last stride of ``x`` is 1, and it is not expanded. If ``theta`` asks for a gradient, a copy
    of the result is saved for it, so that ``x`` and what shares its memory, such as keys beside
    queries, may change again.

    Raises:
        ValueError, TypeError: see ``apply_rotary``; or ``x`` has other strides.
        RuntimeError: ``x`` is a leaf that requires a gradient; in backward, that another operation
            needs what was changed.
    """
    check_arguments(x, theta)
    steps = [step for step, side in zip(x.stride(), x.shape, strict=True) if side > 1]
    if 0 in steps or (x.shape[-1] > 1 and steps[-1] != 1):
        raise ValueError(f'the last stride of x must be 1 and none 0, got {x.stride()}')
    implementation = choose_implementation(x, theta)
    if implementation is None or (theta.requires_grad and torch.is_grad_enabled()):
        return x.copy_(apply_rotary(x.clone(), theta))
    return ApplyRotary.apply(x, theta, implementation, True)


class ApplyRotary(torch.autograd.Function):
    """``definition.apply`` by an implementation, see ``packed.apply`` for its functions.

    Backward is the opposite rotation. The gradient of the angles needs the rotated features, and
    not those that came in.
    """

    @staticmethod
    def forward(x: Tensor, theta: Tensor, implementation: ModuleType, in_place: bool) -> Tensor:
        return implementation.apply(x, theta, in_place)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        x, theta, ctx.implementation, in_place = inputs
        if in_place:
            ctx.mark_dirty(x)
        ctx.save_for_backward(theta, output if theta.requires_grad else None)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        theta, rotated = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted
            grad_x, grad_theta = definition.apply(grad, -theta), None
            if rotated is not None:
                grad_theta = definition.theta_gradient(rotated, grad, theta)
        else:
            grad_x, grad_theta = ctx.implementation.apply_backward(grad, theta, rotated)
        return grad_x, grad_theta, None, None


def choose_implementation(x: Tensor, theta: Tensor) -> ModuleType | None:
    """The first implementation that can be used; None for the definition."""
    if is_tracing():
        return None
    return first_usable(lambda implementation: implementation.can_apply(x, theta))


def check_arguments(x: Tensor, theta: Tensor) -> None:
    """Raise what ``apply_rotary`` says if the tensors do not fit."""
    for name, tensor in (('x', x), ('theta', theta)):
        if tensor.dtype not in DTYPES:
            raise TypeError(f'{name} must be one of {DTYPES}, got {tensor.dtype}')
    if x.device != theta.device:
        raise ValueError(f'theta must be on the device of x, {x.device}, got {theta.device}')
    fits = x.ndim == 4 and theta.ndim == 3
    if fits:
        heads, tokens, pairs = theta.shape
        fits = heads in (1, x.shape[1]) and tokens == x.shape[2] and 2 * pairs <= x.shape[3]
    if not fits:
        raise ValueError(
            'x must be [B, h, N, C] and theta [h or 1, N, P] with 2 P <= C, got '
            f'{list(x.shape)} and {list(theta.shape)}'
        )
