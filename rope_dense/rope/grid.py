"""Token coordinates. x is the column and y the row, both counted from 0 at the top left token."""

from __future__ import annotations

import torch
from torch import Tensor


def grid_positions(
    *, height: int, width: int, device: torch.device, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Positions x [W] of the columns and y [H] of the rows, in patches (Heo et al., section 3.2).

    A window needs no coordinates of its own: attention scores depend on differences of positions
    only, so the grid of one window serves all windows of an image.

    Raises:
        ValueError: ``height`` or ``width`` is less than 1.
    """
    if height < 1 or width < 1:
        raise ValueError(
            f'a grid needs height >= 1 and width >= 1, got height={height}, width={width}'
        )
    x = torch.arange(width, device=device, dtype=dtype)
    y = torch.arange(height, device=device, dtype=dtype)
    return x, y
