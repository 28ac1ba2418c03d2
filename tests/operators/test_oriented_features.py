"""Features of R3Det and S2A-Net: mmcv's compiled operators, and transposes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from helpers.operators import compiled_operators
from rope_dense.operators import oriented_features

DTYPES = (torch.float32, torch.float64)
every_dtype = pytest.mark.parametrize('dtype', DTYPES)


def align_inputs(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Maps, boxes in and around them, and a gradient."""
    generator = torch.Generator().manual_seed(0)
    maps, grad = torch.randn(2, 2, 3, 6, 7, generator=generator, dtype=torch.float64)
    scale = torch.tensor([16, 18, 10, 10, 6])
    boxes = torch.rand(2 * 6 * 7, 5, generator=generator, dtype=torch.float64) * scale
    boxes[:, :2] -= 2
    return maps.to(dtype), boxes.to(dtype), grad.to(dtype)


def align(module: object, dtype: torch.dtype, points: int) -> tuple[Tensor, Tensor]:
    maps, boxes, grad = align_inputs(dtype)
    output, grad_maps = torch.zeros_like(maps), torch.zeros_like(maps)
    module.rotated_feature_align_forward(
        maps, boxes, output, spatial_scale=0.5, points=points
    )
    module.rotated_feature_align_backward(
        grad, boxes, grad_maps, spatial_scale=0.5, points=points
    )
    return output, grad_maps


@every_dtype
@pytest.mark.parametrize('points', [1, 5])
def test_compiled_alignment_is_the_same(points: int, dtype: torch.dtype) -> None:
    """mmcv takes sines and cosines in float32 also for float64."""
    pairs = zip(
        *(align(m, dtype, points) for m in (compiled_operators(), oriented_features)),
        strict=True,
    )
    for expected, actual in pairs:
        tolerance = 1e-12 if dtype == torch.float64 and points == 1 else 1e-5
        torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize('points', [1, 5])
def test_backward_of_alignment_is_its_transpose(points: int) -> None:
    maps, _, grad = align_inputs(torch.float64)
    output, grad_maps = align(oriented_features, torch.float64, points)
    torch.testing.assert_close((output * grad).sum(), (maps * grad_maps).sum())


def rotate(module: object, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Rotated filters and a gradient; each rotation is a random permutation of the cells."""
    generator = torch.Generator().manual_seed(1)
    filters = torch.randn(2, 3, 4, 3, 3, generator=generator, dtype=torch.float64).to(
        dtype
    )
    moves = torch.stack(
        [torch.randperm(36, generator=generator) + 1 for _ in range(5)], 1
    )
    indices = moves.int().view(4, 3, 3, 5).contiguous()
    output, grad_filters = filters.new_zeros(10, 12, 3, 3), torch.zeros_like(filters)
    grad = torch.randn(output.shape, generator=generator, dtype=torch.float64).to(dtype)
    module.active_rotated_filter_forward(filters, indices, output)
    module.active_rotated_filter_backward(grad, indices, grad_filters)
    torch.testing.assert_close((output * grad).sum(), (filters * grad_filters).sum())
    return output, grad_filters


@every_dtype
def test_compiled_filters_are_the_same(dtype: torch.dtype) -> None:
    pairs = zip(
        *(rotate(m, dtype) for m in (compiled_operators(), oriented_features)),
        strict=True,
    )
    for expected, actual in pairs:
        torch.testing.assert_close(actual, expected)
