"""LinearHead against plain torch operators."""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from mmengine.registry import DefaultScope
from torch import Tensor

from rope_dense.models.depth import LinearHead

C, CLASSES = 6, 5
BATCH_NORM = dict(type='BN')


@pytest.fixture(autouse=True)
def scope() -> Iterator[None]:
    """mmseg looks up the loss there."""
    with DefaultScope.overwrite_default_scope('mmseg'):
        yield


def head(**settings: object) -> LinearHead:
    model = LinearHead(C, num_classes=CLASSES, norm_cfg=BATCH_NORM, **settings)
    model.init_weights()
    for tensor in (model.norm.weight, model.norm.bias, model.norm.running_mean):
        torch.nn.init.normal_(tensor)
    torch.nn.init.uniform_(model.norm.running_var, 0.5, 2)
    torch.nn.init.normal_(model.conv_seg.bias)
    return model.double()


def maps() -> list[Tensor]:
    return [torch.randn(4, C, 7, 9, dtype=torch.float64) for _ in range(2)]


def scores(model: LinearHead, x: Tensor) -> Tensor:
    """Batch norm with the running averages, then one product for each token."""
    norm = model.norm
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    tokens = (x.movedim(1, -1) - norm.running_mean) * scale + norm.bias  # [B, H, W, C]
    return F.linear(
        tokens, model.conv_seg.weight[..., 0, 0], model.conv_seg.bias
    ).movedim(-1, 1)


@pytest.mark.parametrize('index', [0, -1])
def test_evaluation_is_a_norm_and_a_product(index: int) -> None:
    model, x = head(in_index=index).eval(), maps()
    torch.testing.assert_close(model(x), scores(model, x[index]))


def test_training_drops_channels_before_the_norm() -> None:
    """So that what is classified has the norm's mean and variance in every channel, dropped or
    not."""
    model = head(dropout_ratio=0.5).train()
    seen: list[Tensor] = []
    model.conv_seg.register_forward_pre_hook(
        lambda module, inputs: seen.append(inputs[0])
    )
    model(maps())
    (x,) = seen
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
    torch.testing.assert_close(mean, model.norm.bias, rtol=0, atol=1e-6)
    torch.testing.assert_close(variance, model.norm.weight**2, rtol=1e-3, atol=1e-6)
    spread = x.flatten(2).var(2)  # [B, C]; a dropped channel of an image is constant
    assert (spread < 1e-12).any() and (spread > 1e-3).any()


def test_first_weights_are_small() -> None:
    """N(0, 0.01) and zero biases, as in the source."""
    model = LinearHead(512, num_classes=150, norm_cfg=BATCH_NORM)
    model.init_weights()
    assert model.conv_seg.weight.std().item() == pytest.approx(0.01, rel=0.02)
    assert not model.conv_seg.bias.any()


def test_every_parameter_gets_a_gradient() -> None:
    model = head(dropout_ratio=0.0).train()
    model(maps()).square().sum().backward()
    assert all(param.grad.abs().sum() > 0 for param in model.parameters())
