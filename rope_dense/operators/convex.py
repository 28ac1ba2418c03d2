"""Areas of intersections and hulls of many small point sets at once.

n sets, K points a set, P and Q corners of two polygons. A set is a ``Points`` with coordinates
[n, K] and a mask [n, K] of the points that belong to it. Everything is differentiable in the
coordinates: the order of points is constant almost everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

# Sine times lengths below which two edges count as parallel, as in mmcv.
PARALLEL = 1e-14
ROWS = 2**21  # pairs of bounds that are compared at once
PAIRS = 2**15  # pairs of polygons whose intersection is computed at once


@dataclass(frozen=True)
class Points:
    """Coordinates x and y, of one shape."""

    x: Tensor
    y: Tensor

    @classmethod
    def of(cls, flat: Tensor) -> Points:
        """From (x1, y1, x2, y2, ...) in the last dimension."""
        return cls(flat[..., 0::2], flat[..., 1::2])

    def __getitem__(self, index: object) -> Points:
        return Points(self.x[index], self.y[index])  # type: ignore[index]

    def __sub__(self, other: Points) -> Points:
        return Points(self.x - other.x, self.y - other.y)

    def gather(self, index: Tensor) -> Points:
        """Points at indices of dimension 1."""
        return Points(self.x.gather(1, index), self.y.gather(1, index))

    def next(self) -> Points:
        """The following corner for each corner of a closed polygon."""
        return Points(self.x.roll(-1, -1), self.y.roll(-1, -1))


def cross(a: Points, b: Points) -> Tensor:
    """Twice the signed area of the triangle (0, a, b)."""
    return a.x * b.y - b.x * a.y


def dot(a: Points, b: Points) -> Tensor:
    """Inner product."""
    return a.x * b.x + a.y * b.y


def join_points(*sets: Points) -> Points:
    """Sets of points [n, K_i] as one set [n, sum of K_i]."""
    x = torch.cat([points.x for points in sets], 1)
    y = torch.cat([points.y for points in sets], 1)
    return Points(x, y)


def crossings(p: Points, q: Points) -> tuple[Points, Tensor]:
    """Crossings of the edges of polygons p [n, P] and q [n, Q].

    Where edges are nearly parallel their crossing is noise along both; it is moved to where they
    lie side by side, or does not count.

    Returns:
        Points [n, P Q] and the mask of the edges that do cross.
    """
    along_p = (p.next() - p)[:, :, None]
    along_q = (q.next() - q)[:, None]
    start = p[:, :, None]
    between = q[:, None] - start  # [n, P, Q]
    sine = cross(along_q, along_p)
    apart = sine.abs() > PARALLEL
    sine = torch.where(apart, sine, 1)
    at_p = cross(along_q, between) / sine
    at_q = cross(along_p, between) / sine
    with torch.no_grad():
        length = dot(along_p, along_p).clamp_min(torch.finfo(sine.dtype).tiny)
        ends = dot(between, along_p) / length  # of the edges of q, along the edge of p
        ends = torch.stack([ends, ends.roll(-1, 2)])
    at_p = at_p.clamp(ends.amin(0), ends.amax(0))
    on_p = (at_p >= 0) & (at_p <= 1)
    valid = apart & on_p & (at_q >= 0) & (at_q <= 1)
    x = start.x + along_p.x * at_p
    y = start.y + along_p.y * at_p
    return Points(x.flatten(1), y.flatten(1)), valid.flatten(1)


def by_angle(points: Points, valid: Tensor) -> Points:
    """Points [n, K] in the order of their angle around their mean, from the lowest on.

    The first point is one with the smallest y, of these with the smallest x. Points outside of the
    mask come last and are copies of the first: the polygon through all points closes.
    """
    y = points.y.masked_fill(~valid, torch.inf)
    lowest = y == y.amin(1, keepdim=True)
    first = points.x.masked_fill(~(valid & lowest), torch.inf).argmin(1, keepdim=True)
    with torch.no_grad():
        number = valid.sum(1, keepdim=True).clamp_min(1)
        x = points.x - points.x.masked_fill(~valid, 0).sum(1, keepdim=True) / number
        y = points.y - points.y.masked_fill(~valid, 0).sum(1, keepdim=True) / number
        cosine = x / (x.abs() + y.abs()).clamp_min(torch.finfo(x.dtype).tiny)
        # Monotonic in the angle, in [-2, 2].
        angle = torch.where(y < 0, cosine - 1, 1 - cosine)
        angle = (angle - angle.gather(1, first)).remainder(4)
        angle = angle.masked_fill(~valid, torch.inf)
        order = angle.scatter(1, first, -1).argsort(1)
        order = torch.where(valid.gather(1, order), order, first)
    return points.gather(order)


def polygon_area(polygon: Points) -> Tensor:
    """Areas [n] of star-shaped polygons [n, K], as triangles from their first corner."""
    corner = polygon - polygon[:, :1]
    return cross(corner[:, 1:-1], corner[:, 2:]).abs().sum(1) / 2


def intersection(
    p: Points,
    q: Points,
    p_in_q: Tensor,
    q_in_p: Tensor,
    convex: bool,
) -> Tensor:
    """Areas [n] of the intersections of convex polygons p [n, P] and q [n, Q].

    Args:
        p_in_q: Mask [n, P] of the corners of p inside of q.
        q_in_p: Mask [n, Q] of the corners of q inside of p.
        convex: Whether the masks are exact, so that all points are corners of the intersection;
            otherwise their hull has the area.
    """
    points, valid = crossings(p, q)
    valid = torch.cat([valid, p_in_q, q_in_p], 1)
    polygon = by_angle(join_points(points, p, q), valid)
    if not convex:
        polygon = hull(polygon)
    return torch.where(valid.sum(1) > 2, polygon_area(polygon), 0)


def hull(polygon: Points) -> Points:
    """Convex hulls of star-shaped polygons [n, K] that begin at a corner of the hull.

    Graham's scan: a corner without a left turn is dropped, one after the other. All n polygons take
    one step at a time, 2 K steps in all.

    Returns:
        Corners [n, K], filled up with copies of the first.
    """
    n, size = polygon.x.shape
    first = torch.zeros(n, 1, dtype=torch.long, device=polygon.x.device)
    # [n, K + 1], indices of corners; the last column is unused.
    stack = first.repeat(1, size + 1)
    top = first
    index = first + 1
    for _ in range(2 * size - 1):
        at_end = index == size
        candidate = index.masked_fill(at_end, 0)  # the first corner closes the polygon
        origin = polygon.gather(stack.gather(1, (top - 1).clamp_min(0)))
        last = polygon.gather(stack.gather(1, top))
        turn = cross(polygon.gather(candidate) - origin, last - origin).detach()
        drop = (top > 0) & (turn >= 0)
        push = ~drop & ~at_end
        top = top + push.long() - drop.long()
        stack.scatter_(1, top.masked_fill(~push, size), candidate)
        index = index + push.long()
    inside = torch.arange(size, device=stack.device) <= top
    return polygon.gather(stack[:, :size].masked_fill(~inside, 0))


def bounds(points: Points) -> Tensor:
    """Smallest and largest x and y of sets [N, K], as [4, N], wider by the rounding."""
    x = points.x
    y = points.y
    low = torch.stack([x.amin(1), y.amin(1)])
    high = torch.stack([x.amax(1), y.amax(1)])
    slack = 16 * torch.finfo(x.dtype).eps * (low.abs() + high.abs())
    limits = torch.cat([low - slack, high + slack])
    return limits + 0 * limits.sum(0)  # NaN in one is NaN in all


def are_apart(bounds1: Tensor, bounds2: Tensor) -> Tensor:
    """Mask of the pairs of bounds, [4, ...] each, that do not overlap; false for NaN."""
    left, top, right, bottom = bounds1
    apart = (left > bounds2[2]) | (right < bounds2[0])
    return apart | (top > bounds2[3]) | (bottom < bounds2[1])


def near_pairs(bounds1: Tensor, bounds2: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Indices of the pairs whose bounds [4, N] and [4, M] overlap or are NaN, ``PAIRS`` at most."""
    rows = ROWS // max(bounds2.shape[1], 1) + 1
    for start in range(0, bounds1.shape[1], rows):
        apart = are_apart(bounds1[:, start : start + rows, None], bounds2[:, None])
        i, j = (~apart).nonzero(as_tuple=True)
        yield from zip((i + start).split(PAIRS), j.split(PAIRS), strict=True)


def rounding_tolerance(*sets: Points) -> Tensor:
    """Rounding of the coordinates of sets [n, K_i], as [n, 1]: distances below it are nothing."""
    values: list[Tensor] = []
    for points in sets:
        values += [points.x, points.y]
    largest = torch.cat(values, 1).detach().abs().amax(1, keepdim=True)
    return 8 * torch.finfo(largest.dtype).eps * largest
