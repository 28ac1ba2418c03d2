"""The angles that a rotary embedding gives attention, and the rotation of queries and keys.

Attention calls ``rotate``. Its definition is in ``kernels/definition.py``, which is also used while
a model is traced, exported or transformed. In eager mode an implementation computes the same.

Letters: B batch (images or windows), N tokens, n of them that have a position, h heads, D channels
of a head, P rotated channel pairs of a head, 2 P <= D.
Checked against complex arithmetic in float64 and against timm in tests/rope/test_rotary.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ..utils.tracing import is_tracing
from .kernels import definition, packed, triton_rotary
from .kernels.definition import PairLayout
from .kernels.packed import cos_sin

IMPLEMENTATIONS = (triton_rotary, packed)  # the first that can be used is used
logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Rotary:
    """The angles by which attention rotates its queries and keys.

    Attributes:
        angles: [n, h or 1, P] radians, or [B, n, h or 1, P] if they differ between images; float32
            or float64 (others are cast to float32). Autograd takes their gradient to whatever they
            were computed from.
        pair_layout: channels of pair t: ``'interleaved'`` (2t, 2t + 1) or ``'half'`` (t, t + P).
        attention_scale: what attention multiplies its scores by, on top of D ** -0.5.

    Channels of a head from 2 P on are not rotated.
    """

    angles: Tensor
    pair_layout: PairLayout = 'interleaved'
    attention_scale: float = 1.0

    def __post_init__(self) -> None:
        if self.angles.dtype not in (torch.float32, torch.float64):
            object.__setattr__(self, 'angles', self.angles.float())

    @cached_property
    def cos_sin(self) -> Tensor:
        """[..., n, h or 1, P, 2], the cosines and sines of the angles, without gradient."""
        with torch.inference_mode(False):  # training may use it later, if this object is cached
            return cos_sin(self.angles)

    def count_bytes(self) -> int:
        """Bytes of the angles with their cosines and sines."""
        return 3 * self.angles.nbytes


def rotate(
    qkv: Tensor, rotary: Rotary | None, num_prefix_tokens: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Unpack a qkv projection, its queries and keys rotated.

    Args:
        qkv: [B, N, 3, h, D]. It is not changed.
        rotary: of the n tokens after the prefix; None rotates nothing.
        num_prefix_tokens: class token and registers, which have no position.

    Returns:
        Queries, keys and values, [B, h, N, D] each.

    Raises:
        ValueError: the angles do not fit the projection.
    """
    qkv = rotate_packed(qkv, rotary, num_prefix_tokens)
    q, k, v = (x.transpose(1, 2) for x in qkv.unbind(2))
    return q, k, v


def rotate_packed(qkv: Tensor, rotary: Rotary | None, num_prefix_tokens: int = 0) -> Tensor:
    """Rotate the first two of the S parts of ``qkv`` [B, N, S, h, D], to the same.

    The parts of a projection, S = 3, are queries, keys and values. See ``rotate``.
    """
    if rotary is None:
        return qkv
    implementation = None
    if not is_tracing():
        check_shapes(qkv, rotary.angles, num_prefix_tokens)
        implementation = choose_implementation(qkv)
    if implementation is None:
        return rotate_definition(qkv, rotary, num_prefix_tokens)
    layout = rotary.pair_layout, num_prefix_tokens
    return Rotate.apply(qkv, rotary.angles, rotary.cos_sin, *layout, implementation)


def rotate_definition(qkv: Tensor, rotary: Rotary, num_prefix_tokens: int = 0) -> Tensor:
    """The definition of ``rotate_packed``, [B, N, S, h, D] to the same."""
    return definition.rotate(qkv, rotary.angles, rotary.pair_layout, num_prefix_tokens)


class Rotate(torch.autograd.Function):
    """``rotate_definition`` by an implementation.

    Backward is the opposite rotation. The gradient of the angles needs the rotated queries and
    keys, which attention saves anyway, and not the projection. Cosines and sines of learned angles
    are computed again in backward: a table for each block would take the memory of an activation.
    """

    @staticmethod
    def forward(
        qkv: Tensor,
        angles: Tensor,
        cos_sin: Tensor,
        layout: PairLayout,
        num_prefix_tokens: int,
        implementation: ModuleType,
    ) -> Tensor:
        return implementation.rotate(qkv, cos_sin, layout, num_prefix_tokens)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        _, angles, table, *ctx.settings = inputs
        ctx.save_for_backward(angles, output if angles.requires_grad else table)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        angles, rotated_or_table = ctx.saved_tensors
        layout, num_prefix_tokens, implementation = ctx.settings
        rotated = rotated_or_table if angles.requires_grad else None
        if torch.is_grad_enabled():  # a second derivative is wanted
            grad_qkv = definition.rotate(grad, -angles, layout, num_prefix_tokens)
            grad_angles = None
            if rotated is not None:
                grad_angles = definition.angle_gradient(
                    rotated, grad, angles, layout, num_prefix_tokens
                )
        else:
            table = rotated_or_table if rotated is None else cos_sin(angles)
            grad_qkv, grad_angles = implementation.rotate_backward(
                grad, table, layout, num_prefix_tokens, rotated
            )
        return grad_qkv, grad_angles, None, None, None, None


def choose_implementation(qkv: Tensor) -> ModuleType | None:
    """The first implementation that can rotate ``qkv``; None for the definition."""
    return first_usable(lambda implementation: implementation.can_use(qkv))


def first_usable(why_not: Callable[[ModuleType], str | None]) -> ModuleType | None:
    """The first implementation for which ``why_not`` gives no reason; the reasons are logged."""
    for implementation in IMPLEMENTATIONS:
        reason = why_not(implementation)
        if reason is None:
            return implementation
        log_once(f'rotation without {implementation.__name__}: {reason}')
    return None


@cache
def log_once(message: str) -> None:
    """Log a message the first time that it is given."""
    logger.info(message)


def check_shapes(qkv: Tensor, angles: Tensor, num_prefix_tokens: int) -> None:
    """Raise ValueError unless the angles fit the projection."""
    batch, tokens, _, heads, head_dim = qkv.shape
    *images, positions, rotated_heads, pairs = angles.shape
    if tokens != num_prefix_tokens + positions or (images and images != [batch]):
        raise ValueError(
            f'the angles are for {positions} tokens{f" of {images[0]} images" if images else ""} '
            f'after {num_prefix_tokens} prefix tokens, the input has {tokens} tokens of {batch}'
        )
    if rotated_heads not in (1, heads) or 2 * pairs > head_dim:
        raise ValueError(
            f'the angles are for {rotated_heads} heads (1 = any) of {2 * pairs} channels or more, '
            f'the input has {heads} heads of {head_dim}'
        )
