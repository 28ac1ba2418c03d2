"""Rotation by PyTorch's own operations.

The packed projection is copied, and its pairs are multiplied as complex numbers.

Letters: see ``rotate``. Checked against its definition and by gradcheck in test_packed.py.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor

from .definition import PairLayout, angles_for, as_packed, from_packed

DEVICE_TYPES = ('cpu', 'cuda')
SWITCH = 'ROPE_DENSE_PACKED'  # an environment variable: 0 leaves the rotation to its definition
IS_ENABLED = os.environ.get(SWITCH) != '0'


def can_use(qkv: Tensor) -> str | None:
    """A reason why ``rotate`` cannot take ``qkv``, or None."""
    if not IS_ENABLED:
        return f'{SWITCH}=0 is set'
    if qkv.device.type not in DEVICE_TYPES:
        return f'complex numbers were not tried on {qkv.device.type!r}'
    return None


def rotate(
    qkv: Tensor,
    cos_sin: Tensor,
    layout: PairLayout,
    num_prefix_tokens: int,
) -> Tensor:
    """Rotate queries and keys.

    Args:
        qkv: [B, N, S, h, D], of which the first two of S are rotated.
        cos_sin: [n, h or 1, P, 2] or [B, n, h or 1, P, 2], of the tokens after the prefix.
        layout: of the pairs, see ``Rotary``.

    Returns:
        A new contiguous tensor like ``qkv``.
    """
    out = qkv.clone(memory_format=torch.contiguous_format)
    return multiply_pairs(out, torch.view_as_complex(cos_sin), layout, num_prefix_tokens)


def rotate_backward(
    grad: Tensor,
    cos_sin: Tensor,
    layout: PairLayout,
    num_prefix_tokens: int,
    rotated: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """The gradient of ``qkv`` and, if ``rotated`` is given, of the angles.

    With z' a rotated pair and g its gradient, the gradient of its angle is Im(conj(z') g).

    Args:
        grad: of the result of ``rotate``.
        rotated: that result, or None.
    """
    table = torch.view_as_complex(cos_sin)
    grad_qkv = grad.clone(memory_format=torch.contiguous_format)
    multiply_pairs(grad_qkv, table.conj(), layout, num_prefix_tokens)
    if rotated is None:
        return grad_qkv, None
    channels, real = 2 * table.shape[-1], cos_sin.dtype
    z, g = (
        as_complex(x[:, num_prefix_tokens:, :2, :, :channels].to(real), layout)
        for x in (rotated, grad)
    )
    return grad_qkv, (z.conj() * g).sum(2).sum_to_size(table.shape).imag


def can_apply(x: Tensor, theta: Tensor) -> str | None:
    """A reason why ``apply`` cannot take these tensors, or None."""
    return can_use(x)


def apply(x: Tensor, theta: Tensor, in_place: bool) -> Tensor:
    """Rotate the pairs (t, t + P) of ``x`` [B, h, N, C] by ``theta`` [h or 1, N, P].

    Args:
        x, theta: of any types; computed in the more precise one, in float32 or better.
        in_place: write to ``x`` and return it.
    """
    packed, table = as_packed(x), cos_sin(angles_for(x, theta))
    if in_place:
        multiply_pairs(packed, torch.view_as_complex(table), 'half', 0)
        return x
    return from_packed(rotate(packed, table, 'half', 0))


def apply_backward(
    grad: Tensor, theta: Tensor, rotated: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The gradient of ``x`` and, if the result is given as ``rotated``, of ``theta``."""
    grad_x, grad_angles = rotate_backward(
        as_packed(grad),
        cos_sin(angles_for(grad, theta)),
        'half',
        0,
        None if rotated is None else as_packed(rotated),
    )
    grad_theta = None if grad_angles is None else grad_angles.transpose(0, 1).to(theta.dtype)
    return from_packed(grad_x), grad_theta


@torch.no_grad()
def cos_sin(angles: Tensor) -> Tensor:
    """Cosines and sines of angles [...], side by side: [..., 2]."""
    out = angles.new_empty(*angles.shape, 2)
    torch.cos(angles, out=out[..., 0])
    torch.sin(angles, out=out[..., 1])
    return out


def multiply_pairs(
    packed: Tensor, table: Tensor, layout: PairLayout, num_prefix_tokens: int
) -> Tensor:
    """Multiply queries and keys of ``packed`` by a complex table, in place.

    Args:
        packed: [B, N, S, h, D].
        table: [..., n, h or 1, P].
    """
    pairs = packed[:, num_prefix_tokens:, :2, :, : 2 * table.shape[-1]]
    real = torch.promote_types(packed.dtype, table.dtype.to_real())
    z = as_complex(pairs.to(real), layout)
    z.mul_(table.unsqueeze(-3))
    if layout == 'half':
        for half, part in zip(pairs.chunk(2, -1), (z.real, z.imag), strict=True):
            half.copy_(part)
    elif z.data_ptr() != pairs.data_ptr():  # a copy, not a view
        pairs.copy_(torch.view_as_real(z).flatten(-2))
    return packed


def as_complex(x: Tensor, layout: PairLayout) -> Tensor:
    """[..., 2 P] to [..., P] complex, a view where the memory allows it."""
    if layout == 'half':
        return torch.complex(*x.chunk(2, -1))
    *strides, last = x.stride()
    if last == 1 and not any(offset % 2 for offset in (*strides, x.storage_offset())):
        return torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.complex(x[..., 0::2], x[..., 1::2])
