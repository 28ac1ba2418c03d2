"""Windows of a backbone: their size, attention within them.

Letters: B images, H x W token grid, N tokens of a window, h heads, D channels of a head, C = h * D.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch.nn.functional as F
from torch import Tensor
from torch.nn.modules.utils import _pair

from ..rope import Partition, Rotation, rotate_windows, window_padding
from ..rope.windows import Size

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
    qkv: Tensor,
    partition: Partition,
    rotation: Rotation | None,
    attend: Callable[[Tensor, Tensor, Tensor, Size], Tensor],
    bias: Tensor | None,
) -> Tensor:
    """Attend within the windows of a grid.

    Only real tokens are projected, before and after: what padding tokens project to is the same for
    all, and nobody looks at what they attend to.

    Args:
        qkv: [B, H, W, 3, h, D], the projection.
        rotation: of a window as large as the largest, or None.
        attend: from queries, keys and values, [number, h, N, D] each, and the size of their windows
            to [number, N, C].
        bias: [3 * C], of the projection; None is zeros.

    Returns:
        [B, H, W, C].
    """
    padding = None if bias is None else bias.to(qkv.dtype).view(qkv.shape[3:])
    of_sizes = rotate_windows(qkv, partition, rotation, padding)
    outs = [attend(*parts, size) for parts, size in zip(of_sizes, partition.sizes, strict=True)]
    return partition.merge(outs)


def strips(
    x: Tensor, window: int, shift: int, padding: int, number: int
) -> list[tuple[Tensor, int, int]]:
    """Cut a grid [B, H, W, C] between rows of windows into about ``number`` strips.

    Args:
        window, shift, padding: of the rows, see ``cut_windows``.

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
    bottom, right = window_padding(x.shape[1:3], window_size)
    return F.pad(x, (0, 0, 0, right, 0, bottom)) if bottom or right else x
