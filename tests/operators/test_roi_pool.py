"""RoI pooling, through mmcv's function, beside a loop over cells."""

from __future__ import annotations

import math

import mmcv.ops
import pytest
import torch
from torch import Tensor

from helpers.operators import use_pytorch
from rope_dense.operators import roi_pool

SIZE, PLACES, SCALE = (9, 12), (3, 2), 0.25


def regions() -> Tensor:
    """Inside, at the border, beyond it, smaller than a cell, turned inside out."""
    corners = [
        [4, 5, 30, 31],
        [0, 0, 47, 35],
        [-40, -9, 20, 90],
        [8, 8, 8, 8],
        [20, 20, 9, 30],
    ]
    image = torch.tensor([[0.0], [1], [1], [0], [1]])
    return torch.cat([image, torch.tensor(corners)], 1).double()


def pool(x: Tensor, roi: list[float]) -> Tensor:
    """One region of maps, cell by cell: [C, S, S']."""
    image, left, top, right, bottom = roi
    left, top, right, bottom = (SCALE * v for v in (left, top, right + 1, bottom + 1))
    out = x.new_zeros(x.shape[1], *PLACES)
    if right <= left or bottom <= top:
        return out
    steps = (bottom - top) / PLACES[0], (right - left) / PLACES[1]
    for row in range(PLACES[0]):
        for column in range(PLACES[1]):
            y, x_ = (
                slice(
                    min(max(math.floor(place * step + start), 0), size),
                    min(max(math.ceil((place + 1) * step + start), 0), size),
                )
                for place, step, start, size in zip(
                    (row, column), steps, (top, left), SIZE, strict=True
                )
            )
            cells = x[int(image), :, y, x_]
            if cells.numel():
                out[:, row, column] = cells.flatten(1).max(1).values
    return out


@pytest.mark.parametrize('values', [2**24, 999])
def test_maxima_of_cells(values: int, monkeypatch: pytest.MonkeyPatch) -> None:
    use_pytorch(monkeypatch)
    monkeypatch.setattr(roi_pool, 'VALUES', values)
    x = torch.randn(2, 3, *SIZE, dtype=torch.float64, requires_grad=True)
    actual = mmcv.ops.roi_pool(x, regions(), PLACES, SCALE)
    expected = torch.stack([pool(x, roi) for roi in regions().tolist()])
    assert torch.equal(actual, expected)
    weight = torch.rand_like(actual)
    (grad,), (expected_grad,) = (
        torch.autograd.grad(out, x, weight) for out in (actual, expected)
    )
    torch.testing.assert_close(grad, expected_grad, rtol=0, atol=1e-12)


def test_equal_cells_and_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of equal cells the first is the maximum; NaN is none."""
    use_pytorch(monkeypatch)
    x = torch.ones(1, 1, *SIZE)
    x[0, 0, 0, 0] = float('nan')
    x.requires_grad_()
    out = mmcv.ops.roi_pool(x, torch.tensor([[0.0, 0, 0, 47, 35]]), (1, 1), SCALE)
    out.sum().backward()
    assert out.item() == 1
    assert x.grad is not None and x.grad.nonzero().tolist() == [[0, 0, 0, 1]]


def test_no_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    use_pytorch(monkeypatch)
    x = torch.randn(2, 3, *SIZE, requires_grad=True)
    out = mmcv.ops.roi_pool(x, torch.zeros(0, 5), PLACES, SCALE)
    out.sum().backward()
    assert out.shape == (0, 3, *PLACES) and x.grad is not None and not x.grad.any()
