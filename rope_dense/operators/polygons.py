"""Operators of mmcv for point sets and quadrilaterals, of Oriented RepPoints, SASM and CFA.

``convex_iou``, ``convex_giou``, ``min_area_polygons``, ``points_in_polygons_forward`` and
``chamfer_distance_*``. The first three are computed in float64. mmcv compiles all of them for GPUs
only: they were not compared with compiled ones. tests/operators/test_polygons.py compares with
shapely, finite differences and loops.

Letters: N point sets of 9 points (x1, y1, ..., x9, y9), K quadrilaterals (x1, y1, ..., x4, y4).
"""

import torch
from torch import Tensor

from .bags import at_least_float32
from .convex import (
    PAIRS,
    Points,
    bounds,
    by_angle,
    cross,
    dot,
    hull,
    intersection,
    join_points,
    near_pairs,
    polygon_area,
    rounding_tolerance,
)

POINTS = 2**20  # pairs of a point and a polygon at once
TRIANGLES = ((0, 1, 2), (0, 2, 3))  # of a quadrilateral


def convex_iou(
    pointsets: Tensor,
    polygons: Tensor,
    ious: Tensor,
) -> None:
    """Write the IoU of convex hulls of point sets [N, 18] with polygons [K, 8] to ``ious`` [N, K].

    Polygons may be concave.
    """
    hulls = hull_of(Points.of(pointsets.double()))
    corners = Points.of(polygons.double())
    hull_areas = polygon_area(hulls)
    areas = signed_area(corners).abs()
    ious.zero_()
    for i, j in near_pairs(bounds(hulls), bounds(corners)):
        inter = hull_intersection(hulls[i], corners[j])
        union = hull_areas[i] + areas[j] - inter
        ious[i, j] = (inter / union).to(ious.dtype)


def convex_giou(
    pointsets: Tensor,
    polygons: Tensor,
    output: Tensor,
) -> None:
    """Write the generalized IoU of point sets with polygons of one index, and its gradient.

    Rezatofighi et al., "Generalized Intersection over Union" (CVPR 2019). Point sets are [N, 18],
    polygons [N, 8]; the output [N, 19] is the gradient of the point set, then the IoU.
    """
    parts = [x.split(PAIRS) for x in (output, pointsets, polygons)]
    for part, flat, polygon in zip(*parts, strict=True):
        corners = Points.of(polygon.detach().double())
        with torch.enable_grad():
            leaf = flat.detach().double().requires_grad_()
            value = giou(Points.of(leaf), corners)
        part[:, :-1] = torch.autograd.grad(value.sum(), leaf)[0]
        part[:, -1] = value.detach()


def giou(points: Points, polygon: Points) -> Tensor:
    """Generalized IoU [n] of hulls of point sets [n, 9] and polygons [n, 4] of one index."""
    hulls = hull_of(points)
    inter = hull_intersection(hulls, polygon)
    union = polygon_area(hulls) + signed_area(polygon).abs() - inter
    around = hull_of(join_points(points, polygon))
    return inter / union - 1 + union / polygon_area(around)


def hull_of(points: Points) -> Points:
    """Convex hulls [n, K] of point sets [n, K], filled up with copies of a corner."""
    return hull(by_angle(points, torch.ones_like(points.x, dtype=torch.bool)))


def signed_area(polygon: Points) -> Tensor:
    """Areas [n] of polygons [n, K], positive from x to y."""
    corner = polygon - polygon[:, :1]
    return cross(corner[:, 1:-1], corner[:, 2:]).sum(1) / 2


def hull_intersection(hulls: Points, polygon: Points) -> Tensor:
    """Areas [n] that hulls [n, K] share with quadrilaterals [n, 4].

    A quadrilateral is the signed sum of two triangles, also where it is concave.
    """
    total = torch.zeros_like(hulls.x[:, 0])
    for corners in TRIANGLES:
        triangle = polygon[:, corners]
        sign = signed_area(triangle).sign()
        is_turned = sign[:, None] < 0
        x = torch.where(is_turned, triangle.x.flip(1), triangle.x)
        y = torch.where(is_turned, triangle.y.flip(1), triangle.y)
        turned = Points(x, y)
        within = contains(turned, hulls)
        around = contains(hulls, turned)
        area = intersection(hulls, turned, within, around, convex=True)
        total = total + sign * area
    return total.abs()


def contains(polygon: Points, points: Points) -> Tensor:
    """Mask [n, P] of points in convex polygons [n, K] whose corners turn from x to y.

    Up to the rounding of coordinates, so that shared edges and corners count.
    """
    side = polygon.next() - polygon
    start = points[:, :, None] - polygon[:, None]  # [n, P, K]
    length = dot(side, side).sqrt().detach()
    least = -rounding_tolerance(polygon, points) * length  # [n, K]
    return (cross(side[:, None], start) >= least[:, None]).all(2)


def min_area_polygons(pointsets: Tensor, polygons: Tensor) -> None:
    """Write the rectangles [N, 8] of the smallest area around point sets [N, 18].

    A side of it lies on a side of the hull, hence on a line through two points: all 36 are tried.
    Corners begin with the largest x and smallest y of the axes turned by an angle in [0, pi / 2).
    Where several rectangles are smallest, mmcv may choose another one.
    """
    parts = pointsets.split(PAIRS // 8)
    outs = polygons.split(PAIRS // 8)
    for part, out in zip(parts, outs, strict=True):
        points = Points.of(part.double())
        first, second = torch.triu_indices(9, 9, 1, device=part.device)
        side = points[:, second] - points[:, first]
        angle = torch.atan2(side.y, side.x).remainder(torch.pi / 2)  # [n, 36]
        cosine = angle.cos()[..., None]
        sine = angle.sin()[..., None]
        x, y = points.x[:, None], points.y[:, None]  # [n, 1, 9]
        along = x * cosine + y * sine
        across = y * cosine - x * sine
        low = torch.stack([along.amin(2), across.amin(2)])
        high = torch.stack([along.amax(2), across.amax(2)])
        best = (high - low).prod(0).argmin(1, keepdim=True)
        cosine = cosine[..., 0].gather(1, best)  # [n, 1]
        sine = sine[..., 0].gather(1, best)
        left, top, right, bottom = [v.gather(1, best) for v in (*low, *high)]
        along = torch.cat([right, left, left, right], 1)
        across = torch.cat([top, top, bottom, bottom], 1)
        x = along * cosine - across * sine
        y = along * sine + across * cosine
        out.copy_(torch.stack([x, y], 2).flatten(1))


def points_in_polygons_forward(
    points: Tensor,
    polygons: Tensor,
    output: Tensor,
) -> None:
    """Write to ``output`` [B, K] whether points [B, 2] are in polygons [K, 8], as 0 and 1.

    Edges to the right of a point are counted. As in mmcv, a point on an edge stops the count there,
    so that it is in or out according to which edge it is on.
    """
    corners = Points.of(at_least_float32(polygons))
    rows = POINTS // max(len(polygons), 1) + 1
    for part, out in zip(points.split(rows), output.split(rows), strict=True):
        x, y = part.to(corners.x.dtype)[:, :, None].unbind(1)  # [b, 1]
        odd = x.new_zeros(len(part), len(polygons), dtype=torch.bool)
        stopped = odd.clone()
        for edge in range(4):
            a = corners[:, edge]
            b = corners[:, edge - 1]
            crosses = (a.y < y) != (b.y < y)
            at = a.x + (y - a.y) * (b.x - a.x) / (b.y - a.y)
            is_a = (a.x == x) & (a.y == y)
            is_b = (b.x == x) & (b.y == y)
            stopped |= is_a | is_b | (crosses & (at == x))
            odd ^= crosses & (at > x) & ~stopped
        out.copy_(odd)


def chamfer_distance_forward(
    xyz1: Tensor,
    xyz2: Tensor,
    dist1: Tensor,
    dist2: Tensor,
    idx1: Tensor,
    idx2: Tensor,
) -> None:
    """Write the squared distance of each point to the nearest one of the other set, and its index.

    Points are [B, n, 2] and [B, m, 2]; ``dist1`` and ``idx1`` [B, n] are of the first set, with
    indices in the second, ``dist2`` and ``idx2`` [B, m] the other way round.
    """
    distance = (xyz1[:, :, None] - xyz2[:, None]).square().sum(3)  # [B, n, m]
    for axis, dist, idx in ((2, dist1, idx1), (1, dist2, idx2)):
        nearest = distance.min(axis)
        dist.copy_(nearest.values)
        idx.copy_(nearest.indices)


def chamfer_distance_backward(
    xyz1: Tensor,
    xyz2: Tensor,
    idx1: Tensor,
    idx2: Tensor,
    graddist1: Tensor,
    graddist2: Tensor,
    gradxyz1: Tensor,
    gradxyz2: Tensor,
) -> None:
    """Add the gradients of both sets of points; other arguments as in forward."""
    forth = (xyz1, xyz2, idx1, graddist1, gradxyz1, gradxyz2)
    back = (xyz2, xyz1, idx2, graddist2, gradxyz2, gradxyz1)
    for near, far, idx, grad, out_near, out_far in (forth, back):
        index = idx.long()[..., None].expand_as(near)
        distance = near - far.gather(1, index)
        change = 2 * grad[..., None] * distance
        out_near += change
        out_far.scatter_add_(1, index, -change)
