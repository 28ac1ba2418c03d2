"""Overlaps of upright boxes (left, top, right, bottom): ``bbox_overlaps`` of mmcv."""

from __future__ import annotations

import torch
from torch import Tensor

from .bags import real


def bbox_overlaps(
    bboxes1: Tensor, bboxes2: Tensor, ious: Tensor, mode: int, aligned: bool, offset: int
) -> None:
    """Write the overlaps of boxes [M, 4] and [N, 4]. Where a divisor is 0, it is NaN, as in mmcv.

    Args:
        ious: [M, N], or [M] for pairs of rows (``aligned``).
        mode: divide the shared area by the area of the union (0) or of the first box (1).
        offset: 0 or 1, added to widths and heights.
    """
    first, second = (boxes.to(real(boxes.dtype)) for boxes in (bboxes1, bboxes2))
    first = first if aligned else first[:, None]
    low = torch.maximum(first[..., :2], second[..., :2])
    sides = torch.minimum(first[..., 2:], second[..., 2:]) - low + offset
    shared = sides.clamp(min=0).prod(-1)
    area, other = ((boxes[..., 2:] - boxes[..., :2] + offset).prod(-1) for boxes in (first, second))
    ious.copy_(shared / (area if mode == 1 else area + other - shared))
