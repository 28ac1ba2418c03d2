"""Upright boxes: ``bbox_overlaps``, ``nms``, ``softnms`` and ``nms_match`` of mmcv.

Boxes are (left, top, right, bottom). ``offset`` (0 or 1) is added to widths and heights. Letters:
N boxes. Checked against the compiled operators and loops over boxes in tests/operators/test_nms.py.
"""

from collections.abc import Callable
from ctypes import c_float

import numpy as np
import torch
from torch import Tensor

from .bags import at_least_float32
from .compiled import torchvision_operators
from .greedy import greedy_keep

COLUMNS_CPU, COLUMNS = 1024, 2**15  # fits the cache; few launches


def nms(
    boxes: Tensor,
    scores: Tensor,
    iou_threshold: float,
    offset: int,
) -> Tensor:
    """Indices of the boxes [N, 4] that greedy suppression keeps, best first.

    A box is kept unless its IoU with a kept box of a higher score [N] exceeds the threshold, which
    is rounded to float32 as the compiled operator does. NaN and 0 / 0 suppress nothing. Of equal
    scores the first counts as the highest.
    """
    threshold = c_float(iou_threshold).value
    boxes = at_least_float32(boxes)
    if offset == 0:
        torchvision = torchvision_operators(boxes.device)
        if torchvision:
            return torchvision.nms(boxes, scores.to(boxes.dtype), threshold)
    iou = make_pairwise_iou(boxes, offset)
    order = scores.sort(stable=True, descending=True).indices
    number = COLUMNS_CPU if boxes.device.type == 'cpu' else COLUMNS
    return greedy_keep(lambda a, b: iou(a, b) > threshold, order, number)


def make_pairwise_iou(
    boxes: Tensor, offset: int = 0
) -> Callable[[Tensor, Tensor], Tensor]:
    """A function from indices [R] and [C] of boxes to their IoU [R, C].

    Its roundings are the compiled operator's, for equal decisions at the threshold.
    """
    corners = boxes.t().contiguous()  # [4, N]
    areas = area(corners, offset)

    def iou(rows: Tensor, columns: Tensor) -> Tensor:
        shared = shared_area(corners[:, rows, None], corners[:, None, columns], offset)
        union = (areas[rows, None] + areas[None, columns]).sub_(shared)
        return shared.div_(union)

    return iou


def area(corners: Tensor, offset: int) -> Tensor:
    """Areas [...] of boxes [4, ...]."""
    width, height = corners[2:] - corners[:2] + offset
    return width * height


def shared_area(
    a: Tensor,
    b: Tensor,
    offset: int,
) -> Tensor:
    """Areas of the intersections of boxes [4, ...]."""
    low = torch.maximum(a[:2], b[:2])
    high = torch.minimum(a[2:], b[2:])
    width, height = high.sub_(low).add_(offset).clamp_(min=0)
    return width.mul_(height)


def bbox_overlaps(
    bboxes1: Tensor,
    bboxes2: Tensor,
    ious: Tensor,
    mode: int,
    aligned: bool,
    offset: int,
) -> None:
    """Write the overlaps of boxes [M, 4] and [N, 4]; NaN where the divisor is 0, as in mmcv.

    Args:
        ious: [M, N], or [M] for pairs of rows (``aligned``).
        mode: divide the shared area by the area of the union (0) or of the first box (1).
        offset: see the module.
    """
    a = at_least_float32(bboxes1).t()
    b = at_least_float32(bboxes2).t()
    if not aligned:
        a = a[:, :, None]
        b = b[:, None]
    shared = shared_area(a, b, offset)
    whole = area(a, offset)
    if not mode:
        whole = whole + area(b, offset) - shared
    ious.copy_(shared / whole)


def softnms(
    boxes: Tensor,
    scores: Tensor,
    dets: Tensor,
    iou_threshold: float,
    sigma: float,
    min_score: float,
    method: int,
    offset: int,
) -> Tensor:
    """Soft-NMS (Bodla et al., ICCV 2017): lower the scores of boxes [N, 4] near better boxes.

    One step for each box, since each choice depends on the scores before it; on a CPU, as mmcv's.

    Args:
        boxes: [N, 4].
        scores: [N].
        dets: [N, 5], to write the boxes and their new scores into, best first.
        iou_threshold: of method 0 and 1.
        sigma: of method 2.
        min_score: boxes with a lower score are discarded.
        method: multiply scores by 0 (method 0) or 1 - IoU (1) where the IoU reaches the threshold,
            or everywhere by exp(-IoU^2 / sigma) (2).
        offset: see the module.

    Returns:
        Indices of the boxes that are left, in the order of ``dets``.
    """
    if not len(boxes):
        return torch.empty(0, dtype=torch.long, device=boxes.device)
    table = torch.cat([boxes, scores[:, None]], 1).to(dets.dtype).numpy(force=True)
    left, top, right, bottom, _ = table.T
    areas = (right - left + offset) * (bottom - top + offset)
    rows = np.stack([*table.T, areas])  # [6, N]
    kind = rows.dtype.type
    threshold = kind(iou_threshold)
    sigma = kind(sigma)
    min_score = kind(min_score)
    indices = np.arange(len(table))
    count = len(table)
    step = 0
    with np.errstate(invalid='ignore', divide='ignore'):
        while step < count:
            best = step + first_maximum(rows[4, step:count])
            for values in (rows, indices):
                values[..., [step, best]] = values[..., [best, step]]
            rest = rows[:, step + 1 : count]
            iou = iou_with(rows[:, step], rest, offset)
            if method == 2:
                rest[4] *= np.exp(-(iou * iou) / sigma)
            elif method in (0, 1):
                rest[4] *= np.where(iou >= threshold, (1 - iou) * method, kind(1))
            step += 1
            discarded = rest[4] < min_score
            if discarded.any():
                places = step + kept_positions(~discarded)
                count = step + len(places)
                for values in (rows, indices):
                    values[..., step:count] = values[..., places]
    dets[:count] = torch.from_numpy(rows[:5, :count].T.copy())
    return torch.from_numpy(indices[:count])


def first_maximum(scores: np.ndarray) -> int:
    """Position of the first highest score; a NaN counts only in the first position."""
    best = int(scores.argmax())
    if np.isnan(scores[best]) and best:  # a NaN is numpy's maximum
        return int(np.where(np.isnan(scores), -np.inf, scores).argmax())
    return best


def iou_with(
    box: np.ndarray,
    others: np.ndarray,
    offset: int,
) -> np.ndarray:
    """IoU [N] of one box [6] with others [6, N]: corners, a score that is not used, areas."""
    width = np.minimum(box[2], others[2]) - np.maximum(box[0], others[0]) + offset
    height = np.minimum(box[3], others[3]) - np.maximum(box[1], others[1]) + offset
    shared = np.maximum(width, 0) * np.maximum(height, 0)
    return shared / (box[5] + others[5] - shared)


def kept_positions(kept: np.ndarray) -> np.ndarray:
    """Positions of the items [N] that are kept, in the order of mmcv.

    Each discarded item is replaced by the last one.
    """
    places = np.flatnonzero(kept)
    order = np.arange(len(places))
    holes = np.flatnonzero(~kept[: len(places)])
    order[holes] = places[::-1][: len(holes)]
    return order


def nms_match(dets: Tensor, iou_threshold: float) -> list[list[int]]:
    """Groups of boxes: each one that is kept, then the boxes that it suppresses, by score.

    Boxes and scores are [N, 5]; a box is suppressed from the threshold on (in `nms`, above it).
    """
    if not len(dets):
        return []
    threshold = c_float(iou_threshold).value
    iou = make_pairwise_iou(dets[:, :4])
    order = dets[:, 4].sort(stable=True, descending=True).indices

    def reaches(rows: Tensor, columns: Tensor) -> Tensor:
        return iou(rows, columns) >= threshold

    kept = greedy_keep(reaches, order)
    groups: list[list[int]] = [[index] for index in kept.tolist()]
    others = order[torch.isin(order, kept, invert=True)]
    for part in others.split(1024):
        owners = reaches(kept, part).int().argmax(0)  # the first that suppresses a box
        for index, owner in zip(part.tolist(), owners.tolist(), strict=True):
            groups[owner].append(index)
    return groups
