"""The rotation of queries and keys by the angles of a rotary embedding. Needs torch alone.

Attention calls ``rotate``. ``rotate_definition`` says what it computes, and is what runs while a
model is traced, exported or transformed; in eager mode an ``Implementation`` computes the same.

Letters: B batch (images or windows), N tokens, n of them that have a position, S parts of a
projection (queries, keys and values), h heads, D channels of a head, P rotated channel pairs of a
head, 2 P <= D. Checked against complex arithmetic in float64 and against timm in
tests/rope/test_rotary.py, implementations also by gradcheck in tests/rope/test_packed.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..utils.memo import is_tracing

PairLayout = Literal['interleaved', 'half']
logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Rotary:
    """The angles by which attention rotates its queries and keys.

    Attributes:
        angles: [n, h or 1, P] radians, or [B, n, h or 1, P] if they differ between images; float32
            or float64 (``rotate`` casts others to float32). Differentiable.
        pair_layout: channels of pair t: ``'interleaved'`` (2t, 2t + 1) or ``'half'`` (t, t + P).
        attention_scale: what attention multiplies its scores by, on top of D ** -0.5.

    Channels of a head from 2 P on are not rotated. Nor are prefix tokens: they stand at the origin,
    where all angles are 0, and scores with them depend on the place of the other token.
    """

    angles: Tensor
    pair_layout: PairLayout = 'interleaved'
    attention_scale: float = 1.0

    @cached_property
    def cos_sin(self) -> Tensor:
        """[..., n, h or 1, P, 2], the cosines and sines of the angles, without gradient."""
        # Training may use it later, if this object is remembered.
        is_inference = torch.is_inference_mode_enabled()
        with torch.inference_mode(False) if is_inference else nullcontext():
            angles = self.angles.detach()
            out = angles.new_empty(*angles.shape, 2)
            torch.cos(angles, out=out[..., 0])
            torch.sin(angles, out=out[..., 1])
            return out

    @property
    def nbytes(self) -> int:
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


def rotate_packed(
    qkv: Tensor, rotary: Rotary | None, num_prefix_tokens: int = 0
) -> Tensor:
    """Rotate the first two of the S parts of ``qkv`` [B, N, S, h, D], to the same.

    The parts of a projection, S = 3, are queries, keys and values. See ``rotate``.
    """
    if rotary is None:
        return qkv
    if rotary.angles.dtype in (torch.float16, torch.bfloat16):
        rotary = replace(rotary, angles=rotary.angles.float())
    if is_tracing():
        return rotate_definition(qkv, rotary, num_prefix_tokens)
    check_shapes(qkv, rotary.angles, num_prefix_tokens)
    how = implementation(qkv.device, qkv.dtype)
    if how is None:
        return rotate_definition(qkv, rotary, num_prefix_tokens)
    needs_grad = qkv.requires_grad or rotary.angles.requires_grad
    if not (needs_grad and torch.is_grad_enabled()):
        return how.rotate(qkv, rotary.cos_sin, rotary.pair_layout, num_prefix_tokens)
    return Rotate.apply(
        qkv, rotary.angles, rotary.cos_sin, rotary.pair_layout, num_prefix_tokens, how
    )


def apply_rotary(x: Tensor, theta: Tensor) -> Tensor:
    """Rotate one tensor, queries or keys: each channel pair (t, t + P) of each token by its angle.

    (a, b) becomes (a cos - b sin, a sin + b cos); channels from 2 P on stay. Computed in float32,
    or in float64 if ``x`` or ``theta`` is. This is the operator "fast-rope" of "Revisiting
    Positional Information in Transformers in the Era of Fused Attention", for attention that is not
    of this package. Checked in tests/rope/test_apply_rotary.py against a loop in float64.

    Args:
        x: [B, h, N, D], of any floating type and strides.
        theta: [h or 1, N, P], radians, of any floating type.

    Returns:
        A new tensor like ``x``. Differentiable in ``x`` and ``theta``.

    Raises:
        ValueError: the shapes do not fit each other.
        TypeError: integers.
    """
    if not (x.is_floating_point() and theta.is_floating_point()):
        raise TypeError(
            f'x and theta must be floating point, got {x.dtype} and {theta.dtype}'
        )
    if x.ndim != 4 or theta.ndim != 3:
        raise ValueError(
            f'x must be [B, h, N, D] and theta [h or 1, N, P], got {list(x.shape)} and '
            f'{list(theta.shape)}'
        )
    packed = x.transpose(1, 2).unsqueeze(2)  # [B, N, 1, h, D]
    angles = theta.transpose(0, 1)  # [N, h or 1, P]
    angles = angles.to(
        torch.promote_types(torch.promote_types(x.dtype, theta.dtype), torch.float)
    )
    return rotate_packed(packed, Rotary(angles, 'half')).squeeze(2).transpose(1, 2)


def check_shapes(qkv: Tensor, angles: Tensor, num_prefix_tokens: int) -> None:
    """Raise ValueError unless the angles fit the projection."""
    batch, tokens, _, heads, head_dim = qkv.shape
    *images, positions, rotated_heads, pairs = angles.shape
    if tokens != num_prefix_tokens + positions or (images and images != [batch]):
        raise ValueError(
            f'the angles are for {positions} tokens{f" of {images[0]} images" if images else ""} '
            f'after {num_prefix_tokens} prefix tokens, the input has {tokens} tokens of {batch} '
            'images'
        )
    if rotated_heads not in (1, heads) or 2 * pairs > head_dim:
        raise ValueError(
            f'the angles are for {rotated_heads} heads (1 = any) of {2 * pairs} channels or more, '
            f'the input has {heads} heads of {head_dim}'
        )


def rotate_definition(
    qkv: Tensor, rotary: Rotary, num_prefix_tokens: int = 0
) -> Tensor:
    """The definition of ``rotate_packed``, [B, N, S, h, D] to the same, in plain torch.

    A pair (a, b) becomes (a cos - b sin, a sin + b cos), computed in float32 or better.
    """
    angles, layout = rotary.angles, rotary.pair_layout
    queries_keys, values = qkv[:, :, :2], qkv[:, :, 2:]
    prefix = queries_keys[:, :num_prefix_tokens]
    tokens = queries_keys[:, num_prefix_tokens:]
    angles = angles.unsqueeze(-3)  # [..., n, 1, h or 1, P], the same for both
    rotated_channels = 2 * angles.shape[-1]
    dtype = torch.promote_types(qkv.dtype, angles.dtype)
    a, b = split_pairs(tokens[..., :rotated_channels].to(dtype), layout)
    cos, sin = angles.cos(), angles.sin()
    rotated = join_pairs(a * cos - b * sin, a * sin + b * cos, layout).to(qkv.dtype)
    rotated = torch.cat([rotated, tokens[..., rotated_channels:]], -1)
    return torch.cat([torch.cat([prefix, rotated], 1), values], 2)


def angle_gradient(
    rotated: Tensor,
    grad: Tensor,
    angles: Tensor,
    layout: PairLayout,
    num_prefix_tokens: int,
) -> Tensor:
    """The gradient of the angles, from what ``rotate_definition`` returned and its gradient.

    a' g_b - b' g_a of each rotated pair (a', b'), summed over all pairs that share an angle.
    """
    channels, dtype = 2 * angles.shape[-1], angles.dtype
    pairs = (
        x[:, num_prefix_tokens:, :2, :, :channels].to(dtype) for x in (rotated, grad)
    )
    # [B, n, 2, h, P]
    (a, b), (grad_a, grad_b) = (split_pairs(x, layout) for x in pairs)
    return (a * grad_b - b * grad_a).sum(2).sum_to_size(angles.shape)


class Rotate(torch.autograd.Function):
    """``rotate_definition`` by an implementation.

    Backward is the opposite rotation. The gradient of the angles needs the rotated queries and
    keys, which attention saves anyway, and not the projection. Cosines and sines of learned angles
    are computed again in backward: a table for each block would take the memory of an activation.
    """

    @staticmethod
    def forward(
        ctx: Any,
        qkv: Tensor,
        angles: Tensor,
        cos_sin: Tensor,
        layout: PairLayout,
        num_prefix_tokens: int,
        how: Implementation,
    ) -> Tensor:
        rotated = how.rotate(qkv, cos_sin, layout, num_prefix_tokens)
        ctx.settings = layout, num_prefix_tokens, how
        ctx.save_for_backward(angles, rotated if angles.requires_grad else cos_sin)
        return rotated

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        angles, rotated_or_table = ctx.saved_tensors
        layout, num_prefix_tokens, how = ctx.settings
        rotated = rotated_or_table if angles.requires_grad else None
        if torch.is_grad_enabled():  # a second derivative is wanted
            grad_qkv = rotate_definition(
                grad, Rotary(-angles, layout), num_prefix_tokens
            )
            grad_angles = None
            if rotated is not None:
                grad_angles = angle_gradient(
                    rotated, grad, angles, layout, num_prefix_tokens
                )
        else:
            table = rotated_or_table if rotated is None else Rotary(angles).cos_sin
            grad_qkv, grad_angles = how.backward(
                grad, table, layout, num_prefix_tokens, rotated
            )
        return grad_qkv, grad_angles, None, None, None, None


class Implementation(NamedTuple):
    """Two functions of tensors that compute what ``rotate_definition`` and its backward do.

    Attributes:
        rotate: see ``rotate_complex``.
        backward: see ``complex_backward``.
    """

    rotate: Callable[[Tensor, Tensor, PairLayout, int], Tensor]
    backward: Callable[
        [Tensor, Tensor, PairLayout, int, Tensor | None], tuple[Tensor, Tensor | None]
    ]


@cache
def implementation(device: torch.device, dtype: torch.dtype) -> Implementation | None:
    """The implementation for tensors of a device and type: a kernel on GPUs, else torch's own.

    None, for the definition, on devices where complex numbers were not tried. RuntimeError if a
    CUDA graph is captured by the first rotation on a GPU.
    """
    if device.type not in ('cpu', 'cuda'):
        return None
    if device.type == 'cuda' and torch.cuda.is_available():
        try:
            from . import rotation_triton

            reason = rotation_triton.why_not(device, dtype)
        except ImportError as error:
            reason = str(error)
        if reason is None:
            return Implementation(
                rotation_triton.rotate_triton, rotation_triton.triton_backward
            )
        logger.info(f'rotation of {dtype} on {device} without a kernel: {reason}')
    return Implementation(rotate_complex, complex_backward)


def rotate_complex(
    qkv: Tensor,
    cos_sin: Tensor,
    layout: PairLayout,
    num_prefix_tokens: int,
    inverse: bool = False,
) -> Tensor:
    """Rotate queries and keys by one product of complex numbers.

    Args:
        qkv: [B, N, S, h, D], of which the first two of S are rotated.
        cos_sin: [n, h or 1, P, 2] or [B, n, h or 1, P, 2], of the tokens after the prefix.
        layout: of the pairs, see ``Rotary``.
        inverse: rotate by the opposite angles.

    Returns:
        A new contiguous tensor like ``qkv``.
    """
    out = qkv.clone(memory_format=torch.contiguous_format)
    table = torch.view_as_complex(cos_sin)
    # [B, n, 2, h, 2 P]
    pairs = out[:, num_prefix_tokens:, :2, :, : 2 * table.shape[-1]]
    dtype = cos_sin.dtype
    if out.dtype != dtype:
        dtype = torch.promote_types(out.dtype, dtype)
    z = as_complex(pairs if out.dtype == dtype else pairs.to(dtype), layout)
    z.mul_((table.conj() if inverse else table).unsqueeze(-3))
    if layout == 'half':
        for half, part in zip(pairs.chunk(2, -1), (z.real, z.imag), strict=True):
            half.copy_(part)
    elif z.data_ptr() != pairs.data_ptr():  # a copy, not a view
        pairs.copy_(torch.view_as_real(z).flatten(-2))
    return out


def complex_backward(
    grad: Tensor,
    cos_sin: Tensor,
    layout: PairLayout,
    num_prefix_tokens: int,
    rotated: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """The gradient of ``qkv`` and, if ``rotated`` (of ``rotate_complex``) is given, of the angles.

    With z' a rotated pair and g its gradient, the gradient of its angle is Im(conj(z') g).
    """
    grad_qkv = rotate_complex(grad, cos_sin, layout, num_prefix_tokens, inverse=True)
    if rotated is None:
        return grad_qkv, None
    *shape, pairs, _ = cos_sin.shape
    z, g = (
        as_complex(
            x[:, num_prefix_tokens:, :2, :, : 2 * pairs].to(cos_sin.dtype), layout
        )
        for x in (rotated, grad)
    )
    return grad_qkv, (z.conj() * g).sum(2).sum_to_size(*shape, pairs).imag


def as_complex(x: Tensor, layout: PairLayout) -> Tensor:
    """[..., 2 P] to [..., P] complex, a view where the memory allows it."""
    if layout == 'half':
        return torch.complex(*x.chunk(2, -1))
    try:
        return torch.view_as_complex(x.view(*x.shape[:-1], -1, 2))
    except RuntimeError:  # a stride or the offset is odd, or the last stride is not 1
        return torch.complex(x[..., 0::2], x[..., 1::2])


def split_pairs(x: Tensor, layout: PairLayout) -> tuple[Tensor, Tensor]:
    """First and second channel of each pair: [..., 2 P] to two [..., P]."""
    if layout == 'interleaved':  # a0 b0 a1 b1 ...
        return x[..., 0::2], x[..., 1::2]
    a, b = x.chunk(2, -1)  # a0 a1 ... b0 b1 ...
    return a, b


def join_pairs(a: Tensor, b: Tensor, layout: PairLayout) -> Tensor:
    """The inverse of ``split_pairs``."""
    if layout == 'interleaved':
        return torch.stack([a, b], -1).flatten(-2)
    return torch.cat([a, b], -1)
