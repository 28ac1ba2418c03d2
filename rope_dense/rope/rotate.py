"""The rotation: its definition, and the choice of a fast path.

``rotate`` is the definition: plain, out of place, differentiable by autograd. ``rotate_qkv`` is
what attention calls: it takes the packed projection, and a fast path when one can be used;
``rotate_windows`` does the same for windows of several sizes.

Letters: B batch (images or windows), N tokens, T those of all windows, h heads, D channels of a
head, P rotated pairs.
Checked against complex arithmetic in float64 and against timm in tests/test_rotate.py.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from .kernels import packed, triton_rotary
from .rotation import QKV, PairLayout, Rotation, Windows, split_windows

logger = logging.getLogger(__name__)

FAST_PATHS = (triton_rotary, packed)  # the first that can be used is; the definition if none can


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Rotate queries or keys.

    Args:
        x: [..., N, h, D], floating point.
        rotation: of N tokens. A pair (a, b) becomes (a cos - b sin, a sin + b cos), in float32.

    Returns:
        A new tensor of the shape and dtype of ``x``.
    """
    check_tokens(rotation, x.shape[-3])
    check_heads(rotation, *x.shape[-2:])
    num_prefix_tokens = rotation.num_prefix_tokens
    prefix, tokens = x[..., :num_prefix_tokens, :, :], x[..., num_prefix_tokens:, :, :]
    rotated_channels = 2 * rotation.freqs.shape[-1]
    angles = rotation.angles()  # [N, h, P]
    dtype = torch.promote_types(x.dtype, angles.dtype)
    a, b = split_pairs(tokens[..., :rotated_channels].to(dtype), rotation.layout)
    cos, sin = angles.cos(), angles.sin()
    turned = join_pairs(a * cos - b * sin, a * sin + b * cos, rotation.layout).to(x.dtype)
    turned = torch.cat([turned, tokens[..., rotated_channels:]], -1)
    return torch.cat([prefix, turned], -3)


def rotate_qkv(qkv: Tensor, rotation: Rotation | None) -> QKV:
    """Unpack a qkv projection, queries and keys rotated.

    Args:
        qkv: [B, N, 3, h, D]. May be overwritten: pass a tensor that nobody else needs.
        rotation: of N tokens, or None to rotate nothing.

    Returns:
        Queries, keys and values, [B, h, N, D] each.
    """
    if rotation is None:
        return qkv.permute(2, 0, 3, 1, 4).unbind()
    check_tokens(rotation, qkv.shape[1])
    return rotate_windows(qkv.flatten(0, 1), rotation.grids(len(qkv)), rotation)[0]


def rotate_windows(qkv: Tensor, windows: Sequence[Windows], rotation: Rotation | None) -> list[QKV]:
    """``rotate_qkv`` for windows of several sizes.

    Args:
        qkv: [T, 3, h, D], the tokens of all windows, each with its prefix tokens. May be
            overwritten.
        windows: their sizes.
        rotation: of a grid, of which each window takes the top left part; or None.

    Returns:
        Queries, keys and values, [number, h, N, D] each, for each size.
    """
    num_prefix_tokens = 0
    if rotation is not None:
        check_heads(rotation, *qkv.shape[-2:])
        check_windows(rotation, windows)
        num_prefix_tokens = rotation.num_prefix_tokens
    for path in FAST_PATHS:
        reason = path.can_use(qkv)
        if reason is None:
            return path.rotate_windows(qkv, windows, rotation)
        if not torch.compiler.is_compiling():
            log_once(f'rotation without {path.__name__}: {reason}')
    pieces = split_windows(qkv, windows, num_prefix_tokens)
    return [
        rotate_out_of_place(piece, rotation and rotation.crop(height=height, width=width))
        for piece, (_, height, width) in zip(pieces, windows, strict=True)
    ]


def rotate_out_of_place(qkv: Tensor, rotation: Rotation | None) -> QKV:
    """``rotate_qkv`` by the definition."""
    q, k, v = qkv.unbind(2)  # [B, N, h, D] each
    if rotation is not None:
        q, k = rotate(q, rotation), rotate(k, rotation)
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


def check_tokens(rotation: Rotation, num_tokens: int) -> None:
    """Raise ValueError unless ``rotation`` is for that many tokens."""
    if num_tokens != rotation.num_tokens:
        raise ValueError(
            f'the rotation is for {rotation.num_prefix_tokens} prefix tokens and a grid of '
            f'{len(rotation.y)} x {len(rotation.x)}, the input has {num_tokens} tokens'
        )


def check_windows(rotation: Rotation, windows: Sequence[Windows]) -> None:
    """Raise ValueError unless the grid of ``rotation`` covers each window."""
    for _, height, width in windows:
        if height > len(rotation.y) or width > len(rotation.x):
            raise ValueError(
                f'the rotation is for a grid of {len(rotation.y)} x {len(rotation.x)}, a window '
                f'has {height} x {width} tokens'
            )


def check_heads(rotation: Rotation, num_heads: int, head_dim: int) -> None:
    """Raise ValueError unless ``rotation`` fits that many heads of so many channels."""
    _, rotated_heads, pairs = rotation.freqs.shape
    if rotated_heads not in (1, num_heads) or 2 * pairs > head_dim:
        raise ValueError(
            f'the rotation is for {rotated_heads} heads (1 = any) of {2 * pairs} channels or more, '
            f'the input has {num_heads} heads of {head_dim}'
        )


def split_pairs(x: Tensor, layout: PairLayout) -> tuple[Tensor, Tensor]:
    """First and second channel of each pair: [..., 2 P] to two [..., P]."""
    if layout == 'adjacent':  # a0 b0 a1 b1 ...
        return x[..., 0::2], x[..., 1::2]
    return x.chunk(2, -1)  # a0 a1 ... b0 b1 ...


def join_pairs(a: Tensor, b: Tensor, layout: PairLayout) -> Tensor:
    """The inverse of ``split_pairs``."""
    if layout == 'adjacent':
        return torch.stack([a, b], -1).flatten(-2)
    return torch.cat([a, b], -1)


@cache
def log_once(message: str) -> None:
    logger.info(message)
