"""Boxes as distributions, against transformers' functions and worked answers."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from mmdet.structures.bbox import bbox_cxcywh_to_xyxy

from rope_dense.models.deim.predictions import (
    decode_distances,
    distance_bins,
    distributions,
    encode_distances,
    mean_distances,
    nearest_bins,
)


@pytest.fixture
def theirs(transformers: ModuleType) -> ModuleType:
    from transformers.loss import loss_d_fine

    return loss_d_fine


def boxes(number: int) -> torch.Tensor:
    return torch.cat([torch.rand(number, 2), 0.05 + 0.3 * torch.rand(number, 2)], -1)


@pytest.mark.parametrize('reg_max, scale, up', [(32, 4.0, 0.5), (16, 8.0, 0.3)])
def test_bins(theirs: ModuleType, reg_max: int, scale: float, up: float) -> None:
    bins = distance_bins(reg_max, scale, up)
    assert torch.allclose(
        bins, theirs.weighting_function(reg_max, torch.tensor([up]), scale)
    )
    assert torch.equal(bins, -bins.flip(0))
    assert bins[-2].item() == pytest.approx(up * scale)


def test_a_box_comes_back() -> None:
    reference, box = boxes(50), boxes(50)
    distances = encode_distances(reference, box, 4.0)
    assert torch.allclose(decode_distances(reference, distances, 4.0), box, atol=1e-6)
    nothing = torch.zeros(50, 4)
    assert torch.allclose(decode_distances(reference, nothing, 4.0), reference)


def test_targets_are_those_of_transformers(theirs: ModuleType) -> None:
    reference, box = boxes(300), boxes(300)
    box[:5], box[5:10, 2:] = reference[:5], 5.0  # at a bin; beyond the last one
    up = torch.tensor([0.5])
    index, right, left = theirs.bbox2distance(
        reference, bbox_cxcywh_to_xyxy(box), 32, 4.0, up
    )
    bins = distance_bins(32, 4.0, 0.5)
    ours, weight = nearest_bins(encode_distances(reference, box, 4.0), bins)
    far = (ours == 0) | (ours == 31)
    assert 0.05 < far.float().mean() < 0.95
    value = (1 - weight) * bins[ours] + weight * bins[ours + 1]
    index = index.long().view(-1, 4)
    expected = left.view(-1, 4) * bins[index] + right.view(-1, 4) * bins[index + 1]
    assert torch.allclose(value, expected, atol=1e-4)
    same = index == ours
    assert same[5:].all()
    assert torch.allclose(weight[same], right.view(-1, 4)[same], atol=1e-4)


def test_the_mean_of_the_nearest_bins_is_the_distance() -> None:
    bins = distance_bins(32, 4.0, 0.5)
    distances = torch.linspace(-3.9, 3.9, 100).view(25, 4)
    index, right = nearest_bins(distances, bins)
    shares = torch.zeros(25, 4, 33)
    shares.scatter_(-1, index[..., None], (1 - right)[..., None])
    shares.scatter_(-1, index[..., None] + 1, right[..., None])
    corners = shares.log().clamp(min=-1e4).flatten(1)
    assert torch.allclose(
        mean_distances(distributions(corners, len(bins)), bins), distances, atol=1e-5
    )
