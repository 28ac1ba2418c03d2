"""The rotation in plain torch.

This is what is traced, exported and transformed, and what the implementations are checked against.

Letters: see ``rotate``. Checked against complex arithmetic in float64 and against timm in
tests/rope/test_rotary.py.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

PairLayout = Literal['interleaved', 'half']


def rotate(qkv: Tensor, angles: Tensor, layout: PairLayout, num_prefix_tokens: int) -> Tensor:
    """Rotate queries and keys, the first two of [B, N, S, h, D], to the same.

    A pair (a, b) becomes (a cos - b sin, a sin + b cos), computed in float32 or better.

    Args:
        angles: [..., n, h or 1, P], of the tokens after the prefix.
        layout: of the pairs, see ``Rotary``.
    """
    queries_keys, values = qkv[:, :, :2], qkv[:, :, 2:]
    prefix, tokens = queries_keys[:, :num_prefix_tokens], queries_keys[:, num_prefix_tokens:]
    angles = angles.unsqueeze(-3)  # [..., n, 1, h or 1, P], the same for both
    rotated_channels = 2 * angles.shape[-1]
    dtype = torch.promote_types(qkv.dtype, angles.dtype)
    a, b = split_pairs(tokens[..., :rotated_channels].to(dtype), layout)
    cos, sin = angles.cos(), angles.sin()
    rotated = join_pairs(a * cos - b * sin, a * sin + b * cos, layout).to(qkv.dtype)
    rotated = torch.cat([rotated, tokens[..., rotated_channels:]], -1)
    return torch.cat([torch.cat([prefix, rotated], 1), values], 2)


def angle_gradient(
    rotated: Tensor, grad: Tensor, angles: Tensor, layout: PairLayout, num_prefix_tokens: int
) -> Tensor:
    """The gradient of the angles, from what ``rotate`` returned and its gradient.

    a' g_b - b' g_a of each rotated pair (a', b'), summed over all pairs that share an angle.
    """
    channels, dtype = 2 * angles.shape[-1], angles.dtype
    pairs = (x[:, num_prefix_tokens:, :2, :, :channels].to(dtype) for x in (rotated, grad))
    (a, b), (grad_a, grad_b) = (split_pairs(x, layout) for x in pairs)  # [B, n, 2, h, P]
    return (a * grad_b - b * grad_a).sum(2).sum_to_size(angles.shape)


def apply(x: Tensor, theta: Tensor) -> Tensor:
    """Rotate the pairs (t, t + P) of ``x`` [B, h, N, C] by ``theta`` [h or 1, N, P]."""
    return from_packed(rotate(as_packed(x), angles_for(x, theta), 'half', 0))


def theta_gradient(rotated: Tensor, grad: Tensor, theta: Tensor) -> Tensor:
    """The gradient of ``theta``, from what ``apply`` returned and its gradient."""
    angles = angles_for(grad, theta)
    of_angles = angle_gradient(as_packed(rotated), as_packed(grad), angles, 'half', 0)
    return of_angles.transpose(0, 1).to(theta.dtype)


def as_packed(x: Tensor) -> Tensor:
    """[B, h, N, C] as a projection with one part, [B, N, 1, h, C]."""
    return x.transpose(1, 2).unsqueeze(2)


def from_packed(x: Tensor) -> Tensor:
    """The inverse of ``as_packed``."""
    return x.squeeze(2).transpose(1, 2)


def angles_for(x: Tensor, theta: Tensor) -> Tensor:
    """``theta`` as [N, h or 1, P], in the precision to compute in."""
    dtype = torch.promote_types(torch.promote_types(x.dtype, theta.dtype), torch.float32)
    return theta.transpose(0, 1).to(dtype)


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
