"""What the rotation is, in plain torch: what is traced, exported and transformed, and what the
implementations are checked against.

Letters: see ``rotary``. Checked against complex arithmetic in float64 and against timm in
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
    """The gradient of the angles, from what ``rotate`` returned and its gradient: a' g_b - b' g_a
    of each rotated pair, summed over all that share an angle."""
    channels, dtype = 2 * angles.shape[-1], angles.dtype
    pairs = (x[:, num_prefix_tokens:, :2, :, :channels].to(dtype) for x in (rotated, grad))
    (a, b), (grad_a, grad_b) = (split_pairs(x, layout) for x in pairs)  # [B, n, 2, h, P]
    return (a * grad_b - b * grad_a).sum(2).sum_to_size(angles.shape)


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
