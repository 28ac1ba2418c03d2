"""Windows of a token grid: partition and its exact inverse.

Letters: B batch, H x W tokens, C channels.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def pad_to_windows(x: Tensor, window_size: tuple[int, int]) -> Tensor:
    """Zero-pad a grid [B, H, W, C] at the bottom and right to whole windows; x itself if it has."""
    bottom, right = -x.shape[1] % window_size[0], -x.shape[2] % window_size[1]
    return F.pad(x, (0, 0, 0, right, 0, bottom)) if bottom or right else x


def partition_windows(x: Tensor, window_size: tuple[int, int]) -> Tensor:
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


def merge_windows(windows: Tensor, window_size: tuple[int, int], grid: tuple[int, int]) -> Tensor:
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
