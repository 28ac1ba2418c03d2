"""Multi-scale deformable attention: mmcv's function for CPUs, a loop over points, gradcheck."""

from __future__ import annotations

import math

import pytest
import torch
from mmcv.ops.multi_scale_deform_attn import (
    MultiScaleDeformableAttnFunction,
    multi_scale_deformable_attn_pytorch,
)
from torch import Tensor

from helpers.operators import use_pytorch

SIZES = [(3, 5), (2, 2)]
B, Q, HEADS, D, POINTS = 2, 3, 2, 2, 2


@pytest.fixture(autouse=True)
def in_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    use_pytorch(monkeypatch)


def inputs(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Values, points (inside and outside of the maps), and weights."""
    tokens = sum(height * width for height, width in SIZES)
    value = torch.randn(B, tokens, HEADS, D, dtype=torch.float64)
    points = (
        torch.rand(B, Q, HEADS, len(SIZES), POINTS, 2, dtype=torch.float64) * 1.6 - 0.3
    )
    weights = torch.rand(B, Q, HEADS, len(SIZES), POINTS, dtype=torch.float64)
    return [x.to(dtype).requires_grad_() for x in (value, points, weights)]


def attend(value: Tensor, points: Tensor, weights: Tensor) -> Tensor:
    """mmcv's function for GPUs."""
    sizes = torch.tensor(SIZES)
    starts = torch.tensor([0, math.prod(SIZES[0])])
    return MultiScaleDeformableAttnFunction.apply(
        value, sizes, starts, points, weights, 64
    )


def test_point_by_point() -> None:
    value, points, weights = (x.detach() for x in inputs())
    expected = torch.zeros(B, Q, HEADS, D, dtype=torch.float64)
    start = 0
    for level, (height, width) in enumerate(SIZES):
        cells = value[:, start : start + height * width].unflatten(1, (height, width))
        start += height * width
        for b, q, head, point in torch.cartesian_prod(
            *map(torch.arange, (B, Q, HEADS, POINTS))
        ).tolist():
            x, y = (
                points[b, q, head, level, point] * torch.tensor([width, height]) - 0.5
            ).tolist()
            for i in (math.floor(y), math.floor(y) + 1):
                for j in (math.floor(x), math.floor(x) + 1):
                    if 0 <= i < height and 0 <= j < width:
                        share = (1 - abs(y - i)) * (1 - abs(x - j))
                        share = share * weights[b, q, head, level, point]
                        expected[b, q, head] += share * cells[b, i, j, head]
    torch.testing.assert_close(attend(value, points, weights), expected.flatten(2))


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_as_mmcv_on_a_cpu(dtype: torch.dtype) -> None:
    value, points, weights = inputs(dtype)
    actual = attend(value, points, weights)
    expected = multi_scale_deformable_attn_pytorch(
        value, torch.tensor(SIZES), points, weights
    )
    torch.testing.assert_close(actual, expected)
    grads = (
        torch.autograd.grad(out.sin().sum(), (value, points, weights))
        for out in (actual, expected)
    )
    torch.testing.assert_close(*grads)


def test_gradcheck() -> None:
    assert torch.autograd.gradcheck(attend, inputs())


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype) -> None:
    value, points, weights = inputs(dtype)
    actual = attend(value, points, weights)
    actual.sum().backward()
    expected = attend(value.double(), points.double(), weights.double())
    assert actual.dtype == value.grad.dtype == dtype
    torch.testing.assert_close(actual, expected.to(dtype))
