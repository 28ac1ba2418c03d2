"""Sizes of maps, and the places of their cells. Letters: H x W map, C channels."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..rope import Coordinates
from ..utils.sizes import Size

Maps = Sequence[Tensor]  # [B, C, H, W] of each level, large to small


def cell_centres(size: Size, device: torch.device) -> Tensor:
    """[H W, 2], (x, y) from 0 to 1, row by row."""
    return Coordinates(offset=0.5, reference=1).positions(*size, device=device)


def size_of(x: Tensor) -> Size:
    """(H, W) of maps or images [B, C, H, W]."""
    height, width = x.shape[2:]
    return height, width
