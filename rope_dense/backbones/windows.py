"""Windows of a token grid: their size, partition and its exact inverse, attention within them.

Letters: B batch, H x W tokens, N tokens of a window, C channels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch.nn.functional as F
from torch import Tensor
from torch.nn.modules.utils import _pair

from ..rope import Windows, split_windows
from .layers import join

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
    attend: Callable[[Tensor, list[Windows]], Tensor],
    *,
    shift: Size = (0, 0),
    padding: Size = (0, 0),
) -> Tensor:
    """Attend within the windows of a grid.

    Published implementations shift the grid cyclically and mask pairs of tokens that are not
    neighbours in the image. Here the border windows are cut to what is left of them instead:
    smaller windows, which attend on their own. Rotation and bias depend on offsets only, so a
    smaller window takes those of its own size. The result is the same, without a mask. Incomplete
    windows are cut in the same way, unless ``padding`` makes them whole.

    Args:
        x: [B, H, W, C].
        attend: from the tokens of all windows [T, C], window after window, and the windows, to the
            same shape.
        shift: tokens by which the windows are moved up and left.
        padding: rows and columns of zeros below and right of the grid, see ``window_padding``.

    Returns:
        [B, H, W, C].
    """
    (height, width), (window_height, window_width) = x.shape[1:3], window_size
    down, right = shift
    if any(padding):
        x = F.pad(x, (0, 0, 0, padding[1], 0, padding[0]))
    strips = [
        [
            (part, (part_height, part_width))
            for part, part_width in cut(strip, 2, window_width, right)
        ]
        for strip, part_height in cut(x, 1, window_height, down)
    ]
    parts = [(partition_windows(part, size), size) for strip in strips for part, size in strip]
    windows = [Windows(len(tokens), *size) for tokens, size in parts]
    tokens = join([tokens.flatten(0, 1) for tokens, _ in parts], 0)
    attended = iter(split_windows(attend(tokens, windows), windows))
    rows = [
        join([merge_windows(next(attended), size, part.shape[1:3]) for part, size in strip], 2)
        for strip in strips
    ]
    return join(rows, 1)[:, :height, :width]


def window_padding(grid: Size, window_size: Size) -> Size:
    """Rows and columns that ``grid`` lacks to whole windows."""
    return -grid[0] % window_size[0], -grid[1] % window_size[1]


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


def strips(
    x: Tensor, window: int, shift: int, padding: int, number: int
) -> list[tuple[Tensor, int, int]]:
    """Cut a grid [B, H, W, C] between rows of windows into about ``number`` strips.

    Args:
        window, shift, padding: of the rows, see ``attend_in_windows``.

    Returns:
        The strips, each with its own shift and padding: the first has the shift, the last the
        padding.
    """
    height = x.shape[1]
    each = max(1, -(-height // window) // number) * window
    ends = [*range(shift + each, height, each), height]
    sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    others = [0] * (len(sizes) - 1)
    return list(zip(x.split(sizes, 1), [shift, *others], [*others, padding], strict=True))


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
