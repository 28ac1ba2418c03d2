"""Windows of a token grid: partition and its exact inverse. Letters: B batch, H x W tokens, C channels."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def partition_windows(x: Tensor, window_size: tuple[int, int]) -> Tensor:
    """Cut a grid into windows, zero-padded at the bottom and right to whole windows.

    Args:
        x: [B, H, W, C].
        window_size: (height, width) in tokens.

    Returns:
        [B * windows, height * width, C], windows and tokens in row-major order.
    """
    window_height, window_width = window_size
    _, height, width, _ = x.shape
    x = F.pad(x, (0, 0, 0, -width % window_width, 0, -height % window_height))
    x = x.unflatten(2, (-1, window_width)).unflatten(1, (-1, window_height))  # [B, rows, wh, columns, ww, C]
    return x.transpose(2, 3).flatten(3, 4).flatten(0, 2)


def merge_windows(windows: Tensor, window_size: tuple[int, int], grid: tuple[int, int]) -> Tensor:
    """The inverse of ``partition_windows``: [B * windows, height * width, C] to [B, H, W, C], padding cut off.

    Args:
        windows: as ``partition_windows`` returns them.
        window_size: (height, width) in tokens.
        grid: (H, W) of the grid before padding.
    """
    (window_height, window_width), (height, width) = window_size, grid
    rows, columns = -(-height // window_height), -(-width // window_width)
    x = windows.unflatten(1, (window_height, window_width)).unflatten(0, (-1, rows, columns))
    x = x.transpose(2, 3).flatten(3, 4).flatten(1, 2)  # [B, padded H, padded W, C]
    return x[:, :height, :width].contiguous()
