"""Point sets and quadrilaterals: shapely, finite differences and loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from rope_dense.operators import convex, polygons

shapely = pytest.importorskip('shapely')


def pointsets(number: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Point sets [N, 18] of sides up to 40 in a square of 100."""
    generator = torch.Generator().manual_seed(seed)
    centre = 100 * torch.rand(number, 1, 2, generator=generator, dtype=torch.float64)
    spread = 40 * torch.rand(number, 1, 2, generator=generator, dtype=torch.float64)
    points = torch.rand(number, 9, 2, generator=generator, dtype=torch.float64) - 0.5
    return (centre + spread * points).flatten(1).to(dtype)


def quadrilaterals(
    number: int, seed: int = 1, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Simple quadrilaterals [K, 8], of both directions, a part of them concave."""
    generator = torch.Generator().manual_seed(seed)
    centre = 100 * torch.rand(number, 1, 2, generator=generator, dtype=torch.float64)
    turn = 0.9 * torch.rand(number, 4, generator=generator, dtype=torch.float64)
    angle = (torch.arange(4) + turn) * math.pi / 2  # [K, 4]
    angle[::2] = angle[::2].flip(1)
    radius = 30 * torch.rand(number, 4, generator=generator, dtype=torch.float64) + 2
    points = torch.stack([radius * angle.cos(), radius * angle.sin()], 2)
    return (centre + points).flatten(1).to(dtype)


def hulls(points: Tensor) -> list:
    return [shapely.MultiPoint(p).convex_hull for p in points.view(-1, 9, 2).tolist()]


def shapes(corners: Tensor) -> list:
    return [shapely.Polygon(q) for q in corners.view(-1, 4, 2).tolist()]


def exact_iou(a: object, b: object) -> float:
    inter = shapely.intersection(a, b).area
    return inter / (a.area + b.area - inter)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_iou_of_hulls_is_exact(dtype: torch.dtype) -> None:
    points, corners = pointsets(40, dtype=dtype), quadrilaterals(30, dtype=dtype)
    assert any(shape.convex_hull.area > 1.01 * shape.area for shape in shapes(corners))
    actual = points.new_empty(40, 30)
    polygons.convex_iou(points, corners, actual)
    expected = [[exact_iou(a, b) for b in shapes(corners)] for a in hulls(points)]
    tolerance = 1e-12 if dtype == torch.float64 else 1e-7
    torch.testing.assert_close(
        actual, torch.tensor(expected, dtype=dtype), rtol=0, atol=tolerance
    )


def giou(points: Tensor, corners: Tensor) -> tuple[Tensor, Tensor]:
    output = points.new_zeros(len(points), 19)
    polygons.convex_giou(points, corners, output)
    return output[:, 18], output[:, :18]


def test_generalized_iou_is_exact() -> None:
    points, corners = pointsets(60, 2), quadrilaterals(60, 3)
    points[:30] += corners[:30].view(-1, 4, 2).mean(1).repeat(1, 9) - points[:30].view(
        -1, 9, 2
    ).mean(1).repeat(1, 9)  # these overlap
    expected = []
    for a, b in zip(hulls(points), shapes(corners), strict=True):
        union, around = shapely.union(a, b), shapely.union(a, b).convex_hull
        expected.append(exact_iou(a, b) - (around.area - union.area) / around.area)
    value, _ = giou(points, corners)
    torch.testing.assert_close(value, torch.tensor(expected, dtype=torch.float64))
    assert (value > 0.2).any() and (value < 0).any()


def test_the_gradient_of_generalized_iou_is_a_finite_difference() -> None:
    points, corners = pointsets(20, 4), quadrilaterals(20, 5)
    points[:10] += corners[:10].view(-1, 4, 2).mean(1).repeat(1, 9) - points[
        :10, :2
    ].repeat(1, 9)
    _, gradient = giou(points, corners)
    steps = 1e-6 * torch.eye(18, dtype=torch.float64)
    moved = points[:, None] + torch.cat([steps, -steps])  # [20, 36, 18]
    values, _ = giou(moved.flatten(0, 1), corners.repeat_interleave(36, 0))
    forward, backward = values.view(20, 2, 18).unbind(1)
    torch.testing.assert_close(
        gradient, (forward - backward) / 2e-6, rtol=1e-5, atol=1e-8
    )


def test_a_set_that_is_its_polygon() -> None:
    corners = quadrilaterals(20, 6)
    corners = corners[[s.convex_hull.area < 1.001 * s.area for s in shapes(corners)]]
    assert len(corners) > 2
    points = torch.cat(
        [corners, corners, corners[:, :2]], 1
    )  # each corner twice or three times
    ious = points.new_zeros(len(points), len(points))
    polygons.convex_iou(points, corners, ious)
    torch.testing.assert_close(ious.diagonal(), torch.ones_like(ious[0]))
    value, gradient = giou(points, corners)
    torch.testing.assert_close(value, torch.ones_like(value))
    assert gradient.isfinite().all()


@pytest.mark.parametrize('dtype', [torch.float16, torch.float32, torch.float64])
def test_smallest_rectangles_are_exact(dtype: torch.dtype) -> None:
    points = pointsets(100, 7, dtype)
    out = points.new_empty(100, 8)
    polygons.min_area_polygons(points, out)
    tolerance = {torch.float16: 0.02, torch.float32: 1e-4, torch.float64: 1e-9}[dtype]
    for hull, rectangle in zip(hulls(points), shapes(out), strict=True):
        best = shapely.oriented_envelope(hull).area
        assert rectangle.area == pytest.approx(best, rel=tolerance, abs=tolerance * 100)
        assert rectangle.buffer(tolerance * 100).contains(hull)


def test_smallest_rectangles_begin_as_in_mmcv() -> None:
    """Largest x and smallest y of axes that are turned by less than a right angle."""
    points = pointsets(50, 8)
    out = points.new_empty(50, 8)
    polygons.min_area_polygons(points, out)
    a, b, c, d = out.view(-1, 4, 2).unbind(1)
    wide, high = a - b, c - b
    angle = torch.atan2(wide[:, 1], wide[:, 0])
    assert (angle > -1e-9).all() and (angle < math.pi / 2).all()
    torch.testing.assert_close(a - d, b - c)
    assert (wide[:, 0] * high[:, 1] - wide[:, 1] * high[:, 0] > 0).all()


@pytest.mark.parametrize('dtype', [torch.float16, torch.float32, torch.float64])
def test_points_in_polygons_are_exact(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polygons, 'POINTS', 700)  # parts of 24 points
    generator = torch.Generator().manual_seed(9)
    points = (100 * torch.rand(200, 2, generator=generator)).to(dtype)
    corners = quadrilaterals(30, 10, dtype)
    output = torch.full((200, 30), 7.0)
    polygons.points_in_polygons_forward(points, corners, output)
    expected = [
        [s.contains(p) for s in shapes(corners)]
        for p in map(shapely.Point, points.tolist())
    ]
    assert torch.equal(output, torch.tensor(expected).float())


def crossings(point: list[float], corners: list[list[float]]) -> bool:
    """mmcv's count of edges to the right, which ends at an edge that the point is on."""
    (x, y), odd = point, False
    for (ax, ay), (bx, by) in zip(corners, corners[-1:] + corners[:-1], strict=True):
        if (x, y) in ((ax, ay), (bx, by)):
            break
        if (ay < y) != (by < y):
            at = ax + (y - ay) * (bx - ax) / (by - ay)
            if at == x:
                break
            odd ^= at > x
    return odd


def test_points_on_edges_are_as_in_mmcv() -> None:
    corners = torch.tensor(
        [[0, 0, 4, 0, 4, 4, 0, 4], [2, 0, 4, 2, 2, 4, 0, 2], [0, 0, 0, 4, 4, 4, 4, 0]]
    ).float()
    points = torch.cartesian_prod(torch.arange(-1, 6), torch.arange(-1, 6)).float()
    output = torch.zeros(len(points), 3)
    polygons.points_in_polygons_forward(points, corners, output)
    shapes = corners.view(3, 4, 2).tolist()
    expected = [
        [crossings(point, shape) for shape in shapes] for point in points.tolist()
    ]
    assert torch.equal(output, torch.tensor(expected).float())


def test_chamfer_distance_and_its_gradient() -> None:
    generator = torch.Generator().manual_seed(11)
    a, b = (
        torch.randn(3, number, 2, generator=generator, dtype=torch.float64)
        for number in (5, 8)
    )
    distances = a.new_zeros(3, 5), a.new_zeros(3, 8)
    indices = torch.zeros(3, 5, dtype=torch.int), torch.zeros(3, 8, dtype=torch.int)
    polygons.chamfer_distance_forward(a, b, *distances, *indices)
    leaves = a.clone().requires_grad_(), b.clone().requires_grad_()
    expected = torch.cdist(*leaves).square()
    for axis, distance, index in zip((2, 1), distances, indices, strict=True):
        torch.testing.assert_close(distance, expected.amin(axis).detach())
        assert torch.equal(index.long(), expected.argmin(axis))
    weights = [
        torch.randn(d.shape, generator=generator, dtype=torch.float64)
        for d in distances
    ]
    total = sum(
        (expected.amin(axis) * w).sum() for axis, w in zip((2, 1), weights, strict=True)
    )
    gradients = torch.zeros_like(a), torch.zeros_like(b)
    polygons.chamfer_distance_backward(a, b, *indices, *weights, *gradients)
    for actual, gradient in zip(
        gradients, torch.autograd.grad(total, leaves), strict=True
    ):
        torch.testing.assert_close(actual, gradient)


def test_parts_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    points, corners = pointsets(50), quadrilaterals(50)
    results = []
    for _ in range(2):
        ious, rectangles = points.new_zeros(50, 50), points.new_zeros(50, 8)
        polygons.convex_iou(points, corners, ious)
        polygons.min_area_polygons(points, rectangles)
        results.append((ious, rectangles, *giou(points, corners)))
        monkeypatch.setattr(convex, 'ROWS', 200)
        for module in (convex, polygons):
            monkeypatch.setattr(module, 'PAIRS', 16)
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


def test_nothing() -> None:
    none, corners = pointsets(0), quadrilaterals(3)
    polygons.convex_iou(none, corners, none.new_zeros(0, 3))
    polygons.convex_iou(pointsets(3), corners[:0], none.new_zeros(3, 0))
    polygons.min_area_polygons(none, none.new_zeros(0, 8))
    polygons.points_in_polygons_forward(none[:, :2], corners, torch.zeros(0, 3))
    polygons.points_in_polygons_forward(corners[:, :2], corners[:0], torch.zeros(3, 0))
    assert giou(none, corners[:0])[1].shape == (0, 18)
