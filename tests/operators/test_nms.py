"""Suppression of upright boxes: loops over boxes, mmcv's compiled operators, hostile boxes."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from helpers.operators import compiled_operators, untied
from rope_dense.operators.nms import nms, nms_match, softnms

NAN, INF = float('nan'), float('inf')


def boxes(number: int, seed: int = 0, square: float = 100.0) -> tuple[Tensor, Tensor]:
    """Boxes [N, 4] with sides of 10 to 70, many of them overlapping, and scores [N]."""
    generator = torch.Generator().manual_seed(seed)
    centre = torch.rand(number, 2, generator=generator) * square
    side = torch.rand(number, 2, generator=generator) * 60 + 10
    scores = torch.rand(number, generator=generator)
    return torch.cat([centre - side / 2, centre + side / 2], 1), scores


def hostile() -> tuple[Tensor, Tensor]:
    """Equal scores and boxes, boxes without area, turned inside out, infinite, and NaN."""
    some, scores = boxes(60, square=30)
    some, scores = some.round(), (scores * 4).round() / 4
    some[5] = some[6] = some[7]
    some[10, 2:] = some[10, :2]
    some[11] = some[10]
    some[12] = some[12, [2, 3, 0, 1]]
    some[13, 2] = INF
    some[14, 0] = -INF
    some[15, 1] = NAN
    scores[20], scores[21] = NAN, -INF
    return some, scores


CASES = {
    'none': boxes(0),
    'one': boxes(1),
    'several blocks': boxes(1500),
    'sparse': boxes(700, square=600),
    'hostile': hostile(),
}
every_case = pytest.mark.parametrize('case', CASES)
offsets = pytest.mark.parametrize('offset', [0, 1])


def iou(a: list[float], b: list[float], offset: int) -> float:
    area = [(box[2] - box[0] + offset) * (box[3] - box[1] + offset) for box in (a, b)]
    sides = (min(a[i + 2], b[i + 2]) - max(a[i], b[i]) + offset for i in range(2))
    shared = math.prod(max(side, 0) for side in sides)
    return shared / (sum(area) - shared)


def greedy(some: Tensor, scores: Tensor, threshold: float, offset: int) -> list[int]:
    kept: list[int] = []
    rows = some.double().tolist()
    for index in scores.argsort(descending=True).tolist():
        if all(iou(rows[index], rows[other], offset) <= threshold for other in kept):
            kept.append(index)
    return kept


@offsets
def test_nms_is_greedy(offset: int) -> None:
    some, scores = boxes(200)
    kept = nms(some, scores, 0.5, offset)
    assert kept.tolist() == greedy(some, scores, 0.5, offset)
    assert 20 < len(kept) < 180
    as_double = nms(some.double(), scores.double(), 0.5, offset)
    assert torch.equal(as_double, kept)


@every_case
@offsets
@pytest.mark.parametrize('threshold', [0.0, 0.3, 0.5, 0.7])
def test_nms_keeps_what_mmcv_keeps(case: str, offset: int, threshold: float) -> None:
    some, scores = CASES[case]
    arguments = dict(iou_threshold=threshold, offset=offset)
    expected = compiled_operators().nms(some, untied(scores), **arguments)
    assert torch.equal(nms(some, scores, **arguments), expected)


@pytest.mark.parametrize('number', [5, 200])
def test_of_equal_scores_the_first_is_the_highest(number: int) -> None:
    """However many there are: pairs of equal boxes, of which each first one is kept."""
    corner = 10.0 * torch.arange(number).div(2, rounding_mode='floor')[:, None]
    some = torch.cat([corner, corner, corner + 8, corner + 8], 1)
    scores = torch.full((number,), 0.5)
    assert nms(some, scores, 0.5, 0).tolist() == list(range(0, number, 2))
    groups = nms_match(torch.cat([some, scores[:, None]], 1), 0.5)
    assert groups == [[*range(i, min(i + 2, number))] for i in range(0, number, 2)]


def test_half_precision_is_computed_in_float32() -> None:
    """The areas of these boxes are infinite in float16."""
    some = torch.tensor(
        [[0, 0, 300, 300], [0, 0, 300, 290], [200, 200, 500, 500]]
    ).half()
    scores = torch.tensor([0.9, 0.8, 0.7]).half()
    assert nms(some, scores, 0.5, 0).tolist() == [0, 2]


def test_many_boxes_in_bounded_memory() -> None:
    """20,000 boxes, whose IoU matrix would take 1.6 GB."""
    some, scores = boxes(20000, square=300)
    kept = nms(some, scores, 0.5, 0)
    assert 2000 < len(kept) < 10000
    expected = compiled_operators().nms(some, scores, iou_threshold=0.5, offset=0)
    assert torch.equal(kept, expected)


@every_case
@pytest.mark.parametrize('method', [0, 1, 2])
@pytest.mark.parametrize('offset, min_score', [(0, 0.05), (1, 0.3)])
def test_softnms_as_mmcv(case: str, method: int, offset: int, min_score: float) -> None:
    some, scores = CASES[case]
    some, scores = some[:200], scores[:200]
    settings = dict(iou_threshold=0.3, sigma=0.5, min_score=min_score, method=method)
    actual, expected = torch.zeros(2, len(some), 5)
    indices = softnms(some, scores, actual, **settings, offset=offset)
    reference = compiled_operators().softnms(
        some, scores, expected, **settings, offset=offset
    )
    assert torch.equal(indices, reference)
    number = len(indices)
    torch.testing.assert_close(actual[:number], expected[:number], equal_nan=True)


def test_softnms_by_hand() -> None:
    """Two boxes that share a third of their union, and one elsewhere."""
    some = torch.tensor(
        [[0.0, 0, 2, 1], [1, 0, 3, 1], [8, 8, 9, 9]], dtype=torch.float64
    )
    scores = torch.tensor([0.9, 0.8, 0.7], dtype=torch.float64)
    results = {}
    for method in range(3):
        dets = torch.zeros(3, 5, dtype=torch.float64)
        indices = softnms(some, scores, dets, 0.3, 0.5, 1e-3, method, 0)
        results[method] = indices.tolist(), dets[: len(indices), 4].tolist()
    assert results[0] == ([0, 2], [0.9, 0.7])
    assert results[1] == ([0, 2, 1], [0.9, 0.7, pytest.approx(0.8 * 2 / 3)])
    assert results[2] == ([0, 2, 1], [0.9, 0.7, pytest.approx(0.8 * math.exp(-2 / 9))])


@every_case
@pytest.mark.parametrize('threshold', [0.3, 0.6])
def test_groups_of_nms_match_are_mmcv_s(case: str, threshold: float) -> None:
    some, scores = CASES[case]
    dets = torch.cat([some, scores[:, None]], 1)
    reference = torch.cat([some, untied(scores)[:, None]], 1)
    assert nms_match(dets, threshold) == compiled_operators().nms_match(
        reference, threshold
    )


def test_groups_of_nms_match_by_hand() -> None:
    """The middle box overlaps both others, which do not overlap; the best suppresses it."""
    dets = torch.tensor([[0.0, 0, 3, 1, 0.5], [1, 0, 4, 1, 0.6], [2, 0, 5, 1, 0.9]])
    assert nms_match(dets, 0.3) == [[2, 1], [0]]
    assert nms_match(dets, 0.9) == [[2], [1], [0]]
