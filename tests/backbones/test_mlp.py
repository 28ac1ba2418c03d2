"""The MLPs against their formulas, and with changed layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_dense.backbones.block import MlpKind, build_mlp

C, HIDDEN = 4, 6


def mlp_of(kind: MlpKind) -> nn.Module:
    module = build_mlp(kind, C, HIDDEN, dict(type='LN', eps=1e-6)).double()
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module


def formula(module: nn.Module, x: Tensor) -> Tensor:
    def linear(name: str, x: Tensor) -> Tensor:
        layer = module.get_submodule(name)
        return x @ layer.weight.T + layer.bias

    if hasattr(module, 'fc1'):
        hidden = linear('fc1', x)
        share = torch.erf(hidden / 2**0.5)
        if module.approximate == 'tanh':
            share = torch.tanh((2 / torch.pi) ** 0.5 * (hidden + 0.044715 * hidden**3))
        return linear('fc2', 0.5 * hidden * (1 + share))
    gate = linear('fc1_g', x)
    hidden = gate * torch.sigmoid(gate) * linear('fc1_x', x)
    if isinstance(module.norm, nn.LayerNorm):
        hidden = hidden - hidden.mean(-1, keepdim=True)
        hidden = hidden / (hidden.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        hidden = hidden * module.norm.weight + module.norm.bias
    return linear('fc2', hidden)


def outs_and_gradients(
    function: Callable[..., Tensor], module: nn.Module
) -> list[Tensor]:
    x = (
        torch.linspace(-2, 2, 2 * 3 * 5 * C, dtype=torch.float64)
        .view(2, 3, 5, C)
        .requires_grad_()
    )
    out = function(x)
    trained = [
        parameter for parameter in module.parameters() if parameter.requires_grad
    ]
    weight = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view(out.shape)
    return [out, *torch.autograd.grad((out * weight).sum(), [x, *trained])]


KINDS = pytest.mark.parametrize('kind', get_args(MlpKind))


@KINDS
@pytest.mark.parametrize('training', [False, True])
def test_values_and_gradients_are_those_of_the_formula(kind: MlpKind, training: bool):
    module = mlp_of(kind).train(training)
    expected = outs_and_gradients(lambda x: formula(module, x), module)
    for found, right in zip(outs_and_gradients(module, module), expected, strict=True):
        torch.testing.assert_close(found, right)


@KINDS
@pytest.mark.parametrize('name', ['fc2.weight', 'fc2.bias'])
def test_a_frozen_parameter_has_no_gradient(kind: MlpKind, name: str):
    module = mlp_of(kind)
    module.get_parameter(name).requires_grad_(False)
    expected = outs_and_gradients(lambda x: formula(module, x), module)
    for found, right in zip(outs_and_gradients(module, module), expected, strict=True):
        torch.testing.assert_close(found, right)
    module(torch.randn(3, C, dtype=torch.float64)).sum().backward()
    assert module.get_parameter(name).grad is None


class Doubled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def subclass(linear: nn.Linear) -> None:
    linear.__class__ = Doubled


def hook(linear: nn.Linear) -> None:
    linear.register_forward_hook(lambda module, inputs, out: 2 * out)


def pre_hook(linear: nn.Linear) -> None:
    linear.register_forward_pre_hook(lambda module, inputs: 2 * inputs[0])


def other_forward(linear: nn.Linear) -> None:
    linear.forward = lambda x: 2 * F.linear(x, linear.weight, linear.bias)


@KINDS
@pytest.mark.parametrize('change', [subclass, hook, pre_hook, other_forward])
def test_a_changed_layer_is_called(kind: MlpKind, change: Callable[[nn.Linear], None]):
    module = mlp_of(kind)
    nn.init.zeros_(module.fc2.bias)
    expected = outs_and_gradients(module, module)[0]
    change(module.fc2)
    torch.testing.assert_close(outs_and_gradients(module, module)[0], 2 * expected)


@KINDS
def test_another_module_in_the_place_of_a_layer_is_called(kind: MlpKind):
    module, x = mlp_of(kind), torch.randn(3, C, dtype=torch.float64)
    expected = module(x)
    hidden = module.fc1 if kind.startswith('gelu') else module.fc1_x
    name = 'fc1' if kind == 'gelu' else 'fc1_x'
    setattr(module, name, nn.Sequential(hidden, nn.Identity()))
    module.fc2 = nn.Sequential(module.fc2, nn.Identity())
    assert torch.equal(module(x), expected)


@KINDS
def test_backward_hooks_of_the_layer_are_called(kind: MlpKind):
    module, seen = mlp_of(kind), []
    module.fc2.register_full_backward_hook(lambda *_: seen.append('after'))
    module.fc2.register_full_backward_pre_hook(lambda *_: seen.append('before'))
    outs_and_gradients(module, module)
    assert seen == ['before', 'after']


def check_autocast(module: nn.Module) -> None:
    """Gradients in bfloat16 are those in float32."""
    x, grads = torch.linspace(-2, 2, 5 * C).view(5, C), []
    for enabled in (False, True):
        with torch.autocast('cpu', torch.bfloat16, enabled=enabled):
            out = module(x)
        assert out.dtype == (torch.bfloat16 if enabled else torch.float32)
        grads.append(
            torch.autograd.grad(out.float().square().sum(), list(module.parameters()))
        )
    for plain, found in zip(*grads, strict=True):
        assert found.dtype == torch.float32
        torch.testing.assert_close(
            found, plain, rtol=3e-2, atol=3e-2 * plain.abs().max().item()
        )


@KINDS
def test_autocast_gives_close_gradients(kind: MlpKind):
    check_autocast(mlp_of(kind).float())


@KINDS
def test_autocast_takes_inputs_in_float32(kind: MlpKind):
    """Those of an adapter, say, in the place of a first layer."""
    module = mlp_of(kind).float()
    for name, layer in module.named_children():
        if name.startswith('fc1'):
            layer.register_forward_hook(lambda _, inputs, out: out.float())
    check_autocast(module)


@KINDS
def test_checkpointing_gives_the_same_gradients(kind: MlpKind):
    module = mlp_of(kind)
    expected = outs_and_gradients(module, module)
    again = outs_and_gradients(
        lambda x: torch.utils.checkpoint.checkpoint(module, x, use_reentrant=False),
        module,
    )
    for found, right in zip(again, expected, strict=True):
        torch.testing.assert_close(found, right)
