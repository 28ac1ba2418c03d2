"""The MLPs against their formulas, and what they keep for backward."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_dense.backbones import layers
from rope_dense.backbones.mlp import MlpKind, build_mlp

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
        return linear('fc2', 0.5 * hidden * (1 + torch.erf(hidden / 2**0.5)))
    gate = linear('fc1_g', x)
    hidden = gate * torch.sigmoid(gate) * linear('fc1_x', x)
    if module.norm is not None:
        hidden = hidden - hidden.mean(-1, keepdim=True)
        hidden = hidden / (hidden.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        hidden = hidden * module.norm.weight + module.norm.bias
    return linear('fc2', hidden)


def outs_and_gradients(function: Callable[..., Tensor], module: nn.Module) -> list[Tensor]:
    x = torch.linspace(-2, 2, 2 * 3 * 5 * C, dtype=torch.float64).view(2, 3, 5, C).requires_grad_()
    out = function(x)
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    weight = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view(out.shape)
    return [out, *torch.autograd.grad((out * weight).sum(), [x, *trained])]


KINDS = pytest.mark.parametrize('kind', ['gelu', 'swiglu', 'swiglu_norm'])


@KINDS
@pytest.mark.parametrize('training', [False, True])
@pytest.mark.parametrize('part', [40, 2**20], ids=['parts', 'whole'])
def test_values_and_gradients_are_those_of_the_formula(
    kind: MlpKind, training: bool, part: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(layers, 'PART', part)
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


def kept(module: nn.Module) -> int:
    """Tensors [tokens, HIDDEN] that are kept for backward."""
    found = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.shape == (5, HIDDEN):
            found[tensor.data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        module(torch.randn(5, C, dtype=torch.float64)).sum()
    return len(found)


@pytest.mark.parametrize(('kind', 'number'), [('gelu', 1), ('swiglu', 2)])
def test_training_keeps_what_goes_into_the_activation_alone(kind: MlpKind, number: int):
    assert kept(mlp_of(kind)) == number


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


@pytest.mark.parametrize('kind', ['gelu', 'swiglu'])
@pytest.mark.parametrize('change', [subclass, hook, pre_hook, other_forward])
def test_a_changed_layer_is_called(kind: MlpKind, change: Callable[[nn.Linear], None]):
    module = mlp_of(kind)
    nn.init.zeros_(module.fc2.bias)
    expected = outs_and_gradients(module, module)[0]
    change(module.fc2)
    torch.testing.assert_close(outs_and_gradients(module, module)[0], 2 * expected)


@pytest.mark.parametrize('kind', ['gelu', 'swiglu'])
def test_backward_hooks_of_the_layer_are_called(kind: MlpKind):
    module, seen = mlp_of(kind), []
    module.fc2.register_full_backward_hook(lambda *_: seen.append('after'))
    module.fc2.register_full_backward_pre_hook(lambda *_: seen.append('before'))
    outs_and_gradients(module, module)
    assert seen == ['before', 'after']


def check_autocast(module: nn.Module) -> None:
    """Training gives in bfloat16 what evaluation gives, where operations are the plain ones."""
    x, grads = torch.linspace(-2, 2, 5 * C).view(5, C), []
    for mode in (False, True):
        module.train(mode)
        with torch.autocast('cpu', torch.bfloat16):
            out = module(x)
        assert out.dtype == torch.bfloat16
        grads.append(torch.autograd.grad(out.float().square().sum(), list(module.parameters())))
    for plain, found in zip(*grads, strict=True):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, plain, rtol=2e-2, atol=2e-2 * plain.abs().max().item())


@KINDS
def test_autocast_gives_the_gradients_of_plain_operations(kind: MlpKind):
    check_autocast(mlp_of(kind).float())


@pytest.mark.parametrize('kind', ['gelu', 'swiglu'])
def test_autocast_takes_inputs_in_float32(kind: MlpKind):
    """Those of an adapter, say, in the place of a first layer."""
    module = mlp_of(kind).float()
    for name, layer in module.named_children():
        if name.startswith('fc1'):
            layer.register_forward_hook(lambda _, inputs, out: out.float())
    check_autocast(module)


@pytest.mark.parametrize('kind', ['gelu', 'swiglu'])
def test_checkpointing_gives_the_same_gradients(kind: MlpKind):
    module = mlp_of(kind)
    expected = outs_and_gradients(module, module)
    again = outs_and_gradients(
        lambda x: torch.utils.checkpoint.checkpoint(module, x, use_reentrant=False), module
    )
    for found, right in zip(again, expected, strict=True):
        torch.testing.assert_close(found, right)
