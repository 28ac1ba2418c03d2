"""mmcv's operators for rotated boxes and quadrilaterals: IoU and NMS.

N, M boxes of two sets, n pairs of boxes. Rotated boxes are (x, y, width, height, angle in radians,
clockwise in images), quadrilaterals four corners (x1, y1, ..., x4, y4). As in mmcv:

- boxes of an area below 1e-14, negative ones included, have an IoU of 0 with all others;
- NaN in the size of a box or in a corner gives an IoU of NaN, NaN elsewhere an IoU of 0 or NaN, and
  neither suppresses a box;
- a corner counts as inside of a quadrilateral if its projections to the first and the last side lie
  within these sides. This is exact for rectangles only: other quadrilaterals have the IoU of mmcv.

Computed in float64 and rounded once. Checked in tests/operators/test_rotated_operators.py against
shapely and the compiled operators, which compute in float32. Of random boxes both are equal within
1e-6. They differ for edges and corners that boxes share up to rounding, for almost identical boxes,
and for long thin ones, where the compiled operators are off by up to 1.
"""

from collections.abc import Callable
from ctypes import c_float
from typing import NamedTuple

import torch
from torch import Tensor

from .bags import at_least_float32
from .convex import (
    PAIRS,
    Points,
    are_apart,
    bounds,
    cross,
    dot,
    intersection,
    join_points,
    near_pairs,
    polygon_area,
    rounding_tolerance,
)
from .greedy import greedy_keep

EMPTY = 1e-14  # area


class BoxPairs(NamedTuple):
    """Corners [n, 4] and areas [n] of n pairs of boxes, relative to the centre of the pair."""

    p: Points
    q: Points
    area_p: Tensor
    area_q: Tensor
    rectangles: bool


Pair = Callable[[Tensor, Tensor], BoxPairs]


def box_iou_rotated(
    boxes1: Tensor,
    boxes2: Tensor,
    ious: Tensor,
    mode_flag: int,
    aligned: bool,
) -> None:
    """IoU of rotated boxes [N, 5] and [M, 5], written to ``ious``.

    Args:
        boxes1: [N, 5], of any floating type (compiled operators on a CPU take float32 only). More
            columns, such as a score, are not read.
        boxes2: [M, 5].
        ious: [N M], or [N] if ``aligned``.
        mode_flag: 0 for the IoU, 1 for the intersection over the area of ``boxes1``.
        aligned: Compare box i with box i.
    """
    write_ious(ious, boxes1[:, :5], boxes2[:, :5], pair_rotated, mode_flag, aligned)


def box_iou_quadri(
    boxes1: Tensor,
    boxes2: Tensor,
    ious: Tensor,
    mode_flag: int,
    aligned: bool,
) -> None:
    """IoU of quadrilaterals [N, 8] and [M, 8], as ``box_iou_rotated``."""
    write_ious(ious, boxes1[:, :8], boxes2[:, :8], pair_quadri, mode_flag, aligned)


def nms_rotated(
    dets: Tensor,
    scores: Tensor,
    order: Tensor,
    dets_sorted: Tensor,
    labels: Tensor,
    iou_threshold: float,
    multi_label: bool,
) -> Tensor:
    """Indices of the rotated boxes that greedy suppression keeps, best first.

    Boxes with an IoU of at least the threshold suppress each other (compiled operators on a GPU:
    more than it). Labels are not compared, neither are they by mmcv: its callers move boxes of each
    class apart.

    Args:
        dets: [N, 5], or [N, 6] with a label.
        scores: [N].
        order: Not used, as ``dets_sorted``, ``labels`` and ``multi_label``.
        iou_threshold: Rounded to float32, as in mmcv.
    """
    return kept_by_nms(dets[:, :5], scores, pair_rotated, iou_threshold)


def nms_quadri(
    dets: Tensor,
    scores: Tensor,
    order: Tensor,
    dets_sorted: Tensor,
    iou_threshold: float,
    multi_label: bool,
) -> Tensor:
    """Indices of the quadrilaterals that greedy suppression keeps, as ``nms_rotated``."""
    return kept_by_nms(dets[:, :8], scores, pair_quadri, iou_threshold)


def diff_iou_rotated_sort_vertices_forward(
    vertices: Tensor,
    mask: Tensor,
    num_valid: Tensor,
) -> Tensor:
    """Corners [B, N, 9], int32, of intersections in the order of their angle, as a closed polygon.

    The rest of the nine, and all of them for fewer than three corners, are the index of a crossing
    that is not valid; mmcv has zeros there. Corners that coincide count once. For the loss of
    rotated IoU; compiled for GPUs alone.

    Args:
        vertices: [B, N, 24, 2], 8 corners of the two boxes and 16 crossings of their sides, around
            the mean of those that are valid.
        mask: [B, N, 24] bool, those that are valid.
        num_valid: Not used.
    """
    x, y = vertices.unbind(-1)
    apart_x = (x[..., None] - x[..., None, :]).abs()
    apart = apart_x + (y[..., None] - y[..., None, :]).abs()
    size = (x.abs() + y.abs()).masked_fill(~mask, 0).amax(-1)
    tolerance = 8 * torch.finfo(x.dtype).eps * size[..., None, None]
    same = (apart <= tolerance) & mask[..., None, :]
    valid = mask & ~same.tril(-1).any(-1)
    angle = torch.atan2(y, x).masked_fill(~valid, torch.inf)
    order = angle.argsort(-1)[..., :9]
    # Corners of two rectangles at most.
    number = valid.sum(-1, keepdim=True).clamp(max=8)
    unused = 8 + (~mask[..., 8:]).int().argmax(-1, keepdim=True)
    place = torch.arange(9, device=order.device)
    index = torch.where(place < number, order, unused)
    index = torch.where(place == number, order[..., :1], index)
    return torch.where(number > 2, index, unused).int()


def write_ious(
    ious: Tensor,
    boxes1: Tensor,
    boxes2: Tensor,
    pair: Pair,
    mode_flag: int,
    aligned: bool,
) -> None:
    """Write the IoU of all pairs of boxes, or of boxes of one index."""
    boxes1 = boxes1.double()
    boxes2 = boxes2.double()
    if aligned:
        values = aligned_iou(boxes1, boxes2, pair, mode_flag)
    else:
        values = iou_matrix(boxes1, boxes2, pair, mode_flag).flatten()
    ious.copy_(values.view_as(ious))


def kept_by_nms(
    boxes: Tensor,
    scores: Tensor,
    pair: Pair,
    iou_threshold: float,
) -> Tensor:
    """Indices that greedy suppression keeps; of equal scores the first counts as the highest."""
    dtype = at_least_float32(boxes).dtype
    boxes = boxes.double()
    threshold = c_float(iou_threshold).value

    def overlapping(rows: Tensor, columns: Tensor) -> Tensor:
        ious = iou_matrix(boxes[rows], boxes[columns], pair, mode_flag=0)
        return ious.to(dtype) >= threshold

    order = scores.sort(stable=True, descending=True).indices
    return greedy_keep(overlapping, order)


def iou_matrix(
    boxes1: Tensor,
    boxes2: Tensor,
    pair: Pair,
    mode_flag: int,
) -> Tensor:
    """IoU [N, M] of all pairs.

    Bounds of all boxes are compared first; the intersection is computed for pairs whose bounds
    overlap, or are NaN.
    """
    ious = boxes1.new_zeros(len(boxes1), len(boxes2))
    for i, j in near_pairs(reach(boxes1), reach(boxes2)):
        ious[i, j] = iou(pair(boxes1[i], boxes2[j]), mode_flag)
    return ious


def reach(boxes: Tensor) -> Tensor:
    """Bounds [4, N] of boxes [N, 5 or 8], and of where ``is_within`` takes a point for inside."""
    if boxes.shape[1] == 8:
        corners = Points.of(boxes)
        return bounds(join_points(corners, span(corners)))
    return bounds(rotated_corners(boxes[:, 0], boxes[:, 1], half_sides(boxes)))


def span(box: Points) -> Points:
    """Corners [N, 4] of the parallelogram of ``is_within``; infinite or NaN if it is flat."""
    start = box[:, :1]
    first = box[:, 1:2] - start
    last = box[:, 3:] - start
    turn = cross(first, last)
    a = dot(first, first) * first.x.new_tensor([0, 0, 1, 1]) / turn
    b = dot(last, last) * first.x.new_tensor([0, 1, 0, 1]) / turn
    x = start.x + a * last.y - b * first.y
    y = start.y - a * last.x + b * first.x
    return Points(x, y)


def aligned_iou(
    boxes1: Tensor,
    boxes2: Tensor,
    pair: Pair,
    mode_flag: int,
) -> Tensor:
    """IoU [n] of boxes of one index; 0 where bounds are apart, however far."""
    parts = zip(boxes1.split(PAIRS), boxes2.split(PAIRS), strict=True)
    values = torch.cat([iou(pair(part1, part2), mode_flag) for part1, part2 in parts])
    apart = are_apart(reach(boxes1), reach(boxes2))
    return values.masked_fill(apart, 0)


def iou(pairs: BoxPairs, mode_flag: int) -> Tensor:
    """IoU [n], or intersections over the first areas."""
    p, q, area_p, area_q, rectangles = pairs
    inter = intersection(p, q, is_within(p, q), is_within(q, p), convex=rectangles)
    base = area_p + area_q - inter if mode_flag == 0 else area_p
    return torch.where((area_p < EMPTY) | (area_q < EMPTY), 0, inter / base)


def is_within(points: Points, box: Points) -> Tensor:
    """Mask [n, P] of points whose projections to two sides of a box [n, 4] lie within these.

    Up to the rounding of coordinates, so that shared edges and corners count. The rounding of a
    short side turns its direction, which counts at the other end of a long box.
    """
    corner = box[:, :1]
    start = points - corner
    slack = rounding_tolerance(points, box)
    inside = torch.ones_like(points.x, dtype=torch.bool)
    for side in (box[:, 1:2] - corner, box[:, 3:] - corner):
        along = dot(start, side)
        length = dot(side, side)
        more = slack * (length.sqrt() + dot(start, start).sqrt())
        inside &= (along >= -more) & (along <= length + more)
    return inside


def pair_rotated(boxes1: Tensor, boxes2: Tensor) -> BoxPairs:
    """Rotated boxes [n, 5] as pairs."""
    x, y = (boxes1[:, :2] + boxes2[:, :2]).unbind(1)
    p, q = [
        rotated_corners(boxes[:, 0] - x / 2, boxes[:, 1] - y / 2, half_sides(boxes))
        for boxes in (boxes1, boxes2)
    ]
    area_p = boxes1[:, 2] * boxes1[:, 3]
    area_q = boxes2[:, 2] * boxes2[:, 3]
    return BoxPairs(p, q, area_p, area_q, True)


def half_sides(boxes: Tensor) -> tuple[Points, Points]:
    """Halves of the sides of rotated boxes [N, 5], as vectors: along the width and the height."""
    cosine = boxes[:, 4].cos() * 0.5
    sine = boxes[:, 4].sin() * 0.5
    width = boxes[:, 2]
    height = boxes[:, 3]
    wide = Points(cosine * width, sine * width)
    return wide, Points(-sine * height, cosine * height)


def rotated_corners(
    x: Tensor,
    y: Tensor,
    sides: tuple[Points, Points],
) -> Points:
    """Corners [N, 4] of rotated boxes with the centres x and y [N]."""
    wide, high = sides
    x0 = x + high.x - wide.x
    x1 = x - high.x - wide.x
    all_x = torch.stack([x0, x1, 2 * x - x0, 2 * x - x1], 1)
    y0 = y + high.y - wide.y
    y1 = y - high.y - wide.y
    all_y = torch.stack([y0, y1, 2 * y - y0, 2 * y - y1], 1)
    return Points(all_x, all_y)


def pair_quadri(boxes1: Tensor, boxes2: Tensor) -> BoxPairs:
    """Quadrilaterals [n, 8] as pairs; areas of their two triangles, which add up if convex."""
    total = torch.zeros_like(boxes1[:, :2])
    for corner in range(0, 8, 2):
        total = total + boxes1[:, corner : corner + 2] + boxes2[:, corner : corner + 2]
    centre = Points.of(total / 8)  # [n, 1]
    p = Points.of(boxes1) - centre
    q = Points.of(boxes2) - centre
    return BoxPairs(p, q, polygon_area(p), polygon_area(q), False)
