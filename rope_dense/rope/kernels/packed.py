"""Rotation in place in the packed qkv projection: one complex product on queries and keys at once.

The projection's own backward does not need its output, so the rotated values may take its place.
Backward is the opposite rotation of the gradient. With z' = a' + i b' a *rotated* pair and
g = g_a + i g_b its gradient,

    d loss / d angle = a' g_b - b' g_a = Im(conj(z') g)

which needs only the rotated queries and keys. Attention keeps those anyway: rotating saves no
activation.

Checked against ``rotate.rotate`` and by gradcheck in float64 in tests/test_packed.py.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from ..rotation import PairLayout, Rotation

PART = 2**18  # complex numbers (windows) that the gradient of the frequencies takes at once


def can_use(qkv: Tensor) -> str | None:
    """A reason why ``rotate_qkv`` cannot take ``qkv`` [B, N, 3, h, D], or None."""
    if torch.compiler.is_compiling():
        return 'the compiler fuses the plain form'
    if qkv.requires_grad and qkv.is_leaf:
        return 'qkv is a leaf that needs a gradient, so it must not be overwritten'
    if qkv.stride(-1) != 1:
        return 'the channels of a head are not contiguous'
    return None


def rotate_qkv(qkv: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor, Tensor]:
    """``rotate.rotate_qkv`` in place: the results are views of ``qkv``, which is overwritten."""
    return RotatePacked.apply(qkv, rotation.freqs, rotation)


class RotatePacked(torch.autograd.Function):
    """[B, N, 3, h, D] and freqs [2, h, P] to queries, keys and values, [B, h, N, D] each."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, qkv: Tensor, freqs: Tensor, rotation: Rotation
    ) -> tuple[Tensor, ...]:
        # Detached, it still shares the version counter: whoever saved qkv for backward is told.
        qkv = qkv.detach()
        turn_(rotated_part(qkv, rotation), rotation.table(), rotation.layout)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # [B, h, N, D] each
        ctx.rotation = rotation
        if ctx.needs_input_grad[1]:
            ctx.save_for_backward(qkv)  # the memory of q and k, which attention saves
        return q, k, v

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, *grads: Tensor) -> tuple[Tensor, Tensor | None, None]:
        rotation = ctx.rotation
        packed = torch.stack([grad.transpose(1, 2) for grad in grads], 2)  # [B, N, 3, h, D]
        grad_part = rotated_part(packed, rotation)
        grad_freqs = None
        if ctx.needs_input_grad[1]:
            (qkv,) = ctx.saved_tensors
            grad_freqs = freqs_gradient(rotated_part(qkv, rotation), grad_part, rotation)
        turn_(grad_part, rotation.table().conj(), rotation.layout)
        return packed, grad_freqs, None


def rotated_part(packed: Tensor, rotation: Rotation) -> Tensor:
    """The view of queries and keys that turns: [B, N, 2, h, 2 P] without prefix tokens."""
    return packed[:, rotation.num_prefix_tokens :, :2, :, : 2 * rotation.freqs.shape[-1]]


def turn_(x: Tensor, table: Tensor, layout: PairLayout) -> None:
    """Multiply the pairs of x [B, N, 2, h, 2 P] by table [N, h, P], in place."""
    dtype = torch.promote_types(x.dtype, table.dtype.to_real())  # float32 or float64
    table = table.to(dtype.to_complex()).unsqueeze(1)  # [N, 1, h, P]
    if layout == 'adjacent' and x.dtype == dtype:
        as_complex(x, layout).mul_(table)
    else:
        x.copy_(from_complex(as_complex(x.to(dtype), layout) * table, layout))


def freqs_gradient(rotated: Tensor, grad: Tensor, rotation: Rotation) -> Tensor:
    """Gradient [2, h, P] of the frequencies, from rotated pairs and their gradients.

    Args:
        rotated, grad: [B, N, 2, h, 2 P].
    """
    dtype = torch.promote_types(rotated.dtype, rotation.freqs.dtype)
    z, g = (as_complex(x.to(dtype), rotation.layout) for x in (rotated, grad))
    # In parts that stay in the cache, and one dimension after the other: on a CPU two to four times
    # as fast as at once.
    batch = max(1, PART // z[0].numel())
    products = (
        a.conj_physical().mul_(b) for a, b in zip(z.split(batch), g.split(batch), strict=True)
    )
    product = sum(part.sum(0) if len(part) > 1 else part[0] for part in products)  # [N, 2, h, P]
    angle = product.sum(1).imag.to(rotation.freqs.dtype)  # [N, h, P]
    if rotation.freqs.shape[1] == 1:
        angle = angle.sum(1, keepdim=True)
    angle = angle.unflatten(0, (len(rotation.y), len(rotation.x)))  # [H, W, h, P]
    # Products and sums, which autocast leaves in float32 (it would round positions in an einsum).
    along_x = (rotation.x[:, None, None] * angle.sum(0)).sum(0)
    along_y = (rotation.y[:, None, None] * angle.sum(1)).sum(0)
    return torch.stack([along_x, along_y])


def as_complex(x: Tensor, layout: PairLayout) -> Tensor:
    """[..., 2 P] to [..., P] complex; a view of x for adjacent pairs."""
    if layout == 'adjacent':
        return torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.complex(*x.chunk(2, -1))


def from_complex(z: Tensor, layout: PairLayout) -> Tensor:
    """The inverse of ``as_complex``."""
    if layout == 'adjacent':
        return torch.view_as_real(z).flatten(-2)
    return torch.cat([z.real, z.imag], -1)
