"""Overlaps of upright boxes, through mmcv's function: against a loop and the compiled operator."""

from __future__ import annotations

import math
from itertools import product

import mmcv.ops
import pytest
import torch
from torch import Tensor

from helpers.operators import compiled_operators, use_pytorch
from rope_dense.operators.nms import bbox_overlaps


def boxes(count: int, seed: int) -> Tensor:
    """Boxes [N, 4] on whole pixels of a small square: apart, touching, inside of each other."""
    corners = torch.randint(
        0, 12, (count, 2, 2), generator=torch.Generator().manual_seed(seed)
    )
    return torch.cat([corners.amin(1), corners.amax(1) + 1], 1).float()


def overlap(a: list[float], b: list[float], mode: str, offset: int) -> float:
    sides = [max(min(a[i + 2], b[i + 2]) - max(a[i], b[i]) + offset, 0) for i in (0, 1)]
    first, second = ((x[2] - x[0] + offset) * (x[3] - x[1] + offset) for x in (a, b))
    shared = math.prod(sides)
    return shared / (first if mode == 'iof' else first + second - shared)


@pytest.mark.parametrize('mode, offset', [*product(['iou', 'iof'], [0, 1])])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64, torch.float16])
def test_overlaps_are_those_of_a_loop(
    mode: str, offset: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_pytorch(monkeypatch)
    first, second = boxes(40, 0).to(dtype), boxes(30, 1).to(dtype)
    expected = torch.tensor(
        [[overlap(a, b, mode, offset) for b in second.tolist()] for a in first.tolist()]
    ).to(dtype)
    assert 0.1 < (expected > 0).float().mean() < 0.9
    actual = mmcv.ops.bbox_overlaps(first, second, mode, offset=offset)
    torch.testing.assert_close(actual, expected)
    pairs = mmcv.ops.bbox_overlaps(
        first[:30], second, mode, aligned=True, offset=offset
    )
    torch.testing.assert_close(pairs, expected[:30].diagonal())


def test_none_without_area_and_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    use_pytorch(monkeypatch)
    none = torch.empty(0, 4)
    assert mmcv.ops.bbox_overlaps(none, boxes(3, 0)).shape == (0, 3)
    assert mmcv.ops.bbox_overlaps(none, none, aligned=True).shape == (0,)
    point, area = torch.tensor([[1.0, 1, 1, 1]]), torch.tensor([[0.0, 0, 2, 2]])
    bad = torch.tensor([[0.0, 0, float('nan'), 2]])
    for first, second, expected in [
        (point, area, 0),
        (point, point, math.nan),
        (area, bad, math.nan),
    ]:
        actual = mmcv.ops.bbox_overlaps(first, second).item()
        assert actual == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    'mode, aligned, offset', [*product([0, 1], [False, True], [0, 1])]
)
def test_equal_to_the_compiled_operator(mode: int, aligned: bool, offset: int) -> None:
    compiled = compiled_operators()
    first, second = boxes(30, 0), boxes(30, 1)
    first[3, 2:] = first[3, :2]
    first[4, 0] = math.nan
    actual, expected = (torch.zeros((30,) if aligned else (30, 30)) for _ in range(2))
    bbox_overlaps(first, second, actual, mode, aligned, offset)
    compiled.bbox_overlaps(
        first, second, expected, mode=mode, aligned=aligned, offset=offset
    )
    torch.testing.assert_close(actual, expected, equal_nan=True)
