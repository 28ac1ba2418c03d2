"""Places in maps of any size, and the sampling of deformable attention there, in plain torch.

Letters: B images, C channels, h heads, D = C / h, Q queries, H x W map, P points of a head in all
maps.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..rope import Coordinates
from ..utils.sizes import Size


def sample_maps(
    maps: Sequence[Tensor], points: Tensor, num_points: Sequence[int], weights: Tensor
) -> Tensor:
    """The weighted sums [B, Q, C] of the values at points in the maps, bilinear.

    Zhu et al., "Deformable DETR" (ICLR 2021). Outside a map its values are 0.

    Args:
        maps: [B h, D, H, W] each.
        points: [B, Q, h, P, 2], (x, y) from -1 to 1, those in the first map first.
        num_points: in each map.
        weights: [B, Q, h, P].
    """
    heads = weights.shape[2]
    points = points.transpose(1, 2).flatten(0, 1)  # [B h, Q, P, 2]
    samples = [
        F.grid_sample(values, places, align_corners=False)
        for values, places in zip(maps, points.split(list(num_points), 2), strict=True)
    ]  # [B h, D, Q, points of the map] each
    weights = weights.transpose(1, 2).flatten(0, 1)[:, None]  # [B h, 1, Q, P]
    out = (torch.cat(samples, -1) * weights).sum(-1)  # [B h, D, Q]
    return out.unflatten(0, (-1, heads)).flatten(1, 2).transpose(1, 2)


def cell_centres(size: Size, device: torch.device) -> Tensor:
    """[H W, 2], (x, y) from 0 to 1, row by row."""
    return Coordinates(offset=0.5, reference=1).positions(*size, device=device)


def size_of(x: Tensor) -> Size:
    """(H, W) of maps or images [B, C, H, W]."""
    height, width = x.shape[2:]
    return height, width
