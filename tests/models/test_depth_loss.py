"""The scale-invariant loss: by hand, its invariance, mmseg's, and DINOv3's code where it is."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from mmengine.logging import MessageHub
from mmseg.models.losses.silog_loss import silog_loss
from torch import Tensor

from helpers.dinov3_source import dinov3
from rope_dense.models.depth import BatchSiLogLoss


@pytest.fixture(autouse=True)
def iteration() -> Iterator[None]:
    hub = MessageHub.get_current_instance()
    hub.update_info('iter', 1000)
    yield
    hub.update_info('iter', 0)


def depths(valid: float = 0.8) -> tuple[Tensor, Tensor]:
    target = 1 + 9 * torch.rand(2, 1, 12, 16)
    return 1 + 9 * torch.rand_like(target), target * (torch.rand_like(target) < valid)


def test_two_pixels_by_hand() -> None:
    """Logarithms 0 and 1 of the ratios: variance 0.5, mean 0.5."""
    loss = BatchSiLogLoss(eps=0.0)
    value = loss(torch.tensor([2.0, 2 * math.e, 5.0]), torch.tensor([2.0, 2.0, 0.0]))
    assert value.item() == pytest.approx(math.sqrt(0.5 + 0.15 * 0.25), rel=1e-6)


@pytest.mark.parametrize('warm', [False, True])
def test_it_is_dinov3_s(warm: bool) -> None:
    depth, target = depths()
    theirs = dinov3('loss').SigLoss(warm_up=warm, warm_iter=1)
    if warm:
        MessageHub.get_current_instance().update_info('iter', 0)
    expected = theirs(depth, target, target > 0)
    torch.testing.assert_close(BatchSiLogLoss(warm_up=100)(depth, target), expected)


def test_it_differs_from_mmseg_s_in_the_share_of_the_mean() -> None:
    """Of one image: mean(g^2) - 0.5 mean(g)^2 there, var(g) + 0.15 mean(g)^2 here."""
    depth, target = (x[:1] for x in depths())
    valid = target > 0
    g = depth[valid].log() - target[valid].log()
    theirs = silog_loss(depth, target).square()
    ours = BatchSiLogLoss(eps=0.0)(depth, target).square()
    count = g.numel()
    expected = (theirs - 0.5 * g.mean() ** 2) * count / (
        count - 1
    ) + 0.15 * g.mean() ** 2
    torch.testing.assert_close(ours, expected)


def test_a_wrong_scale_costs_little() -> None:
    _, target = depths()
    loss = BatchSiLogLoss(eps=0.0)
    exact, scaled = (
        loss(target.clamp(min=1), target),
        loss(3 * target.clamp(min=1), target),
    )
    assert exact < 1e-5
    assert scaled.item() == pytest.approx(math.sqrt(0.15) * math.log(3), rel=1e-5)


@pytest.mark.parametrize('valid', [0, 1])
def test_no_variance_without_two_valid_pixels(valid: int) -> None:
    depth, target = torch.rand(2, 1, 4, 4, requires_grad=True), torch.zeros(2, 1, 4, 4)
    target.view(-1)[:valid] = 2.0
    loss = BatchSiLogLoss()(depth, target)
    loss.backward()
    assert loss.item() == 0 and not depth.grad.any()
