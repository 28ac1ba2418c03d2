"""Focal losses, through mmcv's functions, beside formulas in float64."""

from __future__ import annotations

import mmcv.ops
import pytest
import torch
from mmdet.models.losses.focal_loss import py_sigmoid_focal_loss
from torch import Tensor

from helpers.operators import use_pytorch

GAMMA, ALPHA = 1.5, 0.25
N, C = 9, 4


@pytest.fixture(autouse=True)
def in_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    use_pytorch(monkeypatch)


def logits(dtype: torch.dtype = torch.float64) -> Tensor:
    return (3 * torch.randn(N, C, dtype=torch.float64)).to(dtype).requires_grad_()


def targets(background: int) -> Tensor:
    """Every class, twice, and one item of none."""
    return torch.cat([torch.arange(C), torch.arange(C), torch.tensor([background])])


def gradients(loss: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return loss, torch.autograd.grad(loss, x)[0]


@pytest.mark.parametrize(
    'weights', [None, torch.tensor([1.0, 2, 3, 4], dtype=torch.float64)]
)
def test_sigmoid_focal_loss(weights: Tensor | None) -> None:
    x, target = logits(), targets(C)
    actual = gradients(
        mmcv.ops.sigmoid_focal_loss(x, target, GAMMA, ALPHA, weights, 'sum'), x
    )
    one_hot = torch.nn.functional.one_hot(target, C + 1)[:, :C].double()
    p = x.sigmoid()
    p_target = torch.where(one_hot == 1, p, 1 - p)
    factor = torch.where(one_hot == 1, ALPHA, 1 - ALPHA)
    losses = -factor * (1 - p_target) ** GAMMA * p_target.log()
    if weights is not None:
        losses = losses * torch.cat([weights, weights.new_ones(1)])[target][:, None]
    expected = gradients(losses.sum(), x)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)


def test_it_is_the_loss_of_mmdet_on_a_cpu() -> None:
    x, target = logits(torch.float32), targets(C)
    one_hot = torch.nn.functional.one_hot(target, C + 1)[:, :C]
    actual = gradients(
        mmcv.ops.sigmoid_focal_loss(x, target, GAMMA, ALPHA, None, 'mean'), x
    )
    expected = gradients(
        py_sigmoid_focal_loss(x, one_hot, None, GAMMA, ALPHA, 'sum') / N, x
    )
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('gamma', [0.0, 0.5, 2.0])
def test_confident_logits_are_exact(gamma: float) -> None:
    """The probability rounds to 1 from a logit of 17 on, where mmcv's loss jumps to 87."""
    x = torch.linspace(-60, 60, 121)[:, None]
    for target, sign in ((0, 1), (1, -1)):  # of the class, and of others
        exact = (x.double() * sign).requires_grad_()
        factor = ALPHA if target == 0 else 1 - ALPHA
        losses = (
            -factor
            * (-exact).sigmoid() ** gamma
            * torch.nn.functional.logsigmoid(exact)
        )
        expected = losses.detach(), sign * torch.autograd.grad(losses.sum(), exact)[0]
        leaf, targets = x.clone().requires_grad_(), torch.full((len(x),), target)
        loss = mmcv.ops.sigmoid_focal_loss(leaf, targets, gamma, ALPHA, None, 'none')
        actual = loss.detach(), torch.autograd.grad(loss.sum(), leaf)[0]
        for a, b in zip(actual, expected, strict=True):
            torch.testing.assert_close(a, b.float(), rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize('gamma', [0.0, 0.5, 2.0])
def test_a_certain_class_has_a_finite_gradient(gamma: float) -> None:
    x = torch.tensor([[50.0, 0, 0], [0, 90, -90]], requires_grad=True)
    loss = mmcv.ops.softmax_focal_loss(
        x, torch.tensor([0, 1]), gamma, ALPHA, None, 'sum'
    )
    (grad,) = torch.autograd.grad(loss, x)
    assert loss == 0 and grad.abs().max() < 1e-6


def test_large_logits_are_finite() -> None:
    """Certain, and right or wrong; also in half precision."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = torch.tensor(
            [[200.0, -200.0], [-200.0, 200.0]], dtype=dtype, requires_grad=True
        )
        loss = mmcv.ops.sigmoid_focal_loss(
            x, torch.tensor([0, 0]), 2.0, ALPHA, None, 'none'
        )
        loss.sum().backward()
        assert loss.dtype == dtype and loss[0].eq(0).all() and (loss[1] > 20).all()
        assert x.grad is not None and x.grad.isfinite().all()


@pytest.mark.parametrize(
    'weights', [None, torch.tensor([1.0, 2, 3, 4], dtype=torch.float64)]
)
def test_softmax_focal_loss(weights: Tensor | None) -> None:
    x, target = logits(), targets(-1)
    actual = gradients(
        mmcv.ops.softmax_focal_loss(x, target, GAMMA, ALPHA, weights, 'sum'), x
    )
    p = x[:-1].softmax(1).gather(1, target[:-1, None])[:, 0]
    losses = -ALPHA * (1 - p) ** GAMMA * p.log()
    if weights is not None:
        losses = losses * weights[target[:-1]]
    expected = gradients(losses.sum(), x)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)
