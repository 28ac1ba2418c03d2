"""Windows of a token grid: their size, partition and its exact inverse, attention within them.

Letters: B batch, H x W tokens, N tokens of a window, C channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.modules.utils import _pair

Size = tuple[int, int]  # (height, width) in tokens
WindowSetting = int | Size | Literal['auto'] | None


def check_window_setting(window_size: WindowSetting) -> Size | Literal['auto'] | None:
    """A window size as it is kept: a pair, 'auto', or None for the whole grid.

    Raises:
        ValueError: anything else.
    """
    if window_size is None or window_size == 'auto':
        return window_size
    sides = _pair(window_size)
    if len(sides) != 2 or any(not isinstance(side, int) or side < 1 for side in sides):
        raise ValueError(
            'window_size must be a number of tokens, two of them (height, width), '
            f"'auto' or None (the whole grid), got {window_size!r}"
        )
    return tuple(sides)


def fitting_side(size: int, reference: int) -> int:
    """The side of windows that pads ``size`` tokens least, nearest to ``reference`` among equals.

    From half to twice ``reference``, so that a prime size does not end in windows of one token.
    """
    sides = range(max(1, min(size, reference // 2)), 2 * reference + 1)
    return min(sides, key=lambda side: (-size % side, abs(side - reference)))


def attend_in_windows(
    x: Tensor,
    window_size: Size,
    attend: Callable[[Tensor, Size], Tensor],
    *,
    shift: Size = (0, 0),
    mask_padding: bool = False,
) -> Tensor:
    """Attend within the windows of a grid.

    Published implementations shift the grid cyclically and mask pairs of tokens that are not
    neighbours in the image. Here the border windows are cut to what is left of them instead:
    smaller windows, which attend on their own. Rotation and bias depend on offsets only, so a
    smaller window takes those of its own size. The result is the same, without a mask.

    Args:
        x: [B, H, W, C], zero-padded at the bottom and right to whole windows.
        attend: from windows [B * windows, N, C] and their size to the same shape.
        shift: tokens by which the windows are moved up and left.
        mask_padding: cut incomplete windows instead of padding them, the same as hiding padding
            from all others.

    Returns:
        [B, H, W, C].
    """
    height, width = x.shape[1:3]
    if not mask_padding:
        x = pad_to_windows(x, window_size)
    strips = []
    for strip, part_height in cut(x, 1, window_size[0], shift[0]):
        parts = []
        for part, part_width in cut(strip, 2, window_size[1], shift[1]):
            size = part_height, part_width
            windows = attend(partition_windows(part, size), size)
            parts.append(merge_windows(windows, size, tuple(part.shape[1:3])))
        strips.append(join(parts, 2))
    return join(strips, 1)[:, :height, :width]


def cut(x: Tensor, dim: int, window: int, shift: int) -> list[tuple[Tensor, int]]:
    """Cut a grid along ``dim`` where windows shifted by ``shift`` change size.

    Returns:
        The parts and the size of their windows: one incomplete window of ``shift`` tokens, all
        complete windows, the incomplete rest; those that exist.
    """
    total = x.shape[dim]
    first = min(shift, total)
    whole = (total - first) // window * window
    sizes = [first, whole, total - first - whole]
    parts = zip(x.split(sizes, dim), (first, window, sizes[2]), strict=True)
    return [(part, size) for part, size in parts if part.shape[dim]]


def join(parts: Sequence[Tensor], dim: int) -> Tensor:
    """``torch.cat`` that does not copy a single part."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def pad_to_windows(x: Tensor, window_size: Size) -> Tensor:
    """Zero-pad a grid [B, H, W, C] at the bottom and right to whole windows; x itself if it has."""
    bottom, right = -x.shape[1] % window_size[0], -x.shape[2] % window_size[1]
    return F.pad(x, (0, 0, 0, right, 0, bottom)) if bottom or right else x


def partition_windows(x: Tensor, window_size: Size) -> Tensor:
    """Cut a grid into windows, zero-padded at the bottom and right to whole windows.

    Args:
        x: [B, H, W, C].
        window_size: (height, width) in tokens.

    Returns:
        [B * windows, height * width, C], windows and tokens in row-major order.
    """
    window_height, window_width = window_size
    x = pad_to_windows(x, window_size)
    x = x.unflatten(2, (-1, window_width))
    x = x.unflatten(1, (-1, window_height))  # [B, rows, wh, columns, ww, C]
    return x.transpose(2, 3).flatten(3, 4).flatten(0, 2)


def merge_windows(windows: Tensor, window_size: Size, grid: Size) -> Tensor:
    """The inverse of ``partition_windows``, padding cut off.

    Args:
        windows: as ``partition_windows`` returns them.
        window_size: (height, width) in tokens.
        grid: (H, W) of the grid before padding.

    Returns:
        [B, H, W, C].
    """
    (window_height, window_width), (height, width) = window_size, grid
    rows, columns = -(-height // window_height), -(-width // window_width)
    x = windows.unflatten(1, (window_height, window_width)).unflatten(0, (-1, rows, columns))
    x = x.transpose(2, 3).flatten(3, 4).flatten(1, 2)  # [B, padded H, padded W, C]
    return x[:, :height, :width].contiguous()
