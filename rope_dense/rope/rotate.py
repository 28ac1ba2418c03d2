"""The rotation: its definition, and the choice of a fast path.

``rotate`` is the definition: plain, out of place, differentiable by autograd. ``rotate_qkv`` is
what attention calls: it takes the packed projection, and a fast path when one can be used;
``rotate_windows`` does the same for the windows of a grid.

Letters: B batch (images or windows), N tokens, H x W token grid, h heads, D channels of a head, P
rotated pairs.
Checked against complex arithmetic in float64 and against timm in tests/test_rotate.py.
"""

from __future__ import annotations

import logging
from functools import cache
from types import ModuleType

import torch
from torch import Tensor

from .kernels import packed, triton_rotary
from .kernels.autograd import cannot_overwrite, rotate_in_place, rotate_into_windows
from .rotation import QKV, PairLayout, Rotation
from .windows import Partition

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
    check_heads(rotation, *qkv.shape[-2:])
    path = fast_path(qkv)
    if path is not None and overwritable(qkv):
        return rotate_in_place(qkv, rotation, path)
    return rotate_out_of_place(qkv, rotation)


def rotate_windows(
    qkv: Tensor, partition: Partition, rotation: Rotation | None, padding: Tensor | None = None
) -> list[QKV]:
    """``rotate_qkv`` for the windows of a grid, whose tokens turn by their place in the window.

    Args:
        qkv: [B, H, W, 3, h, D].
        partition: of the grid.
        rotation: of a grid, of which each window takes the top left part, without prefix tokens; or
            None.
        padding: [3, h, D], the projection of a padding token; None is zeros.

    Returns:
        Queries, keys and values, [number, h, N, D] each, for each size of windows.

    Raises:
        ValueError: the partition is not of that grid, or the rotation does not cover the windows.
    """
    if qkv.shape[:3] != partition.shape:
        raise ValueError(
            f'the partition is of {partition.shape} (images, height, width), the input has '
            f'{tuple(qkv.shape[:3])}'
        )
    if rotation is not None:
        check_heads(rotation, *qkv.shape[-2:])
        check_windows(rotation, partition)
    path = fast_path(qkv)
    if path is not None:
        return rotate_into_windows(qkv, partition, rotation, padding, path)
    return [
        rotate_out_of_place(whole, rotation and rotation.crop(height=height, width=width))
        for whole, (height, width) in zip(partition.cut(qkv, padding), partition.sizes, strict=True)
    ]


def fast_path(qkv: Tensor) -> ModuleType | None:
    """The first that can be used, None if none can."""
    for path in FAST_PATHS:
        reason = path.can_use(qkv)
        if reason is None:
            return path
        if not torch.compiler.is_compiling():
            log_once(f'rotation without {path.__name__}: {reason}')
    return None


def overwritable(qkv: Tensor) -> bool:
    """Whether a rotation may take the place of ``qkv``."""
    reason = cannot_overwrite(qkv)
    if reason is not None:
        log_once(f'rotation out of place: {reason}')
    return reason is None


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


def check_windows(rotation: Rotation, partition: Partition) -> None:
    """Raise ValueError unless the grid of ``rotation`` covers each window."""
    if rotation.num_prefix_tokens:
        raise ValueError(
            f'windows have no prefix tokens, the rotation is for {rotation.num_prefix_tokens}'
        )
    for height, width in partition.sizes:
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
