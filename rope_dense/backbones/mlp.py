"""The MLPs of transformer blocks.

In training they keep for backward what goes into the activation function, not what comes out of it,
the largest tensor of a block: the function is cheap next to the linear layers around it, so its
result is made again.

Letters: N tokens, C channels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

from .layers import build_norm, in_parts

MlpKind = Literal['gelu', 'swiglu', 'swiglu_norm']


def build_mlp(kind: MlpKind, embed_dims: int, hidden_dims: int, norm_cfg: dict) -> nn.Module:
    """The MLP of a block; its norm, if the kind has one, is that of ``norm_cfg``."""
    if kind == 'gelu':
        return Mlp(embed_dims, hidden_dims)
    return SwiGLU(embed_dims, hidden_dims, norm_cfg if kind == 'swiglu_norm' else None)


class Mlp(nn.Module):
    """Two linear layers with a GELU between, [..., C] to [..., C]."""

    def __init__(self, embed_dims: int, hidden_dims: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(embed_dims, hidden_dims)
        self.fc2 = nn.Linear(hidden_dims, embed_dims)

    def forward(self, x: Tensor) -> Tensor:
        return in_parts(self.forward_tokens, x.flatten(0, -2)).view(x.shape)

    def forward_tokens(self, x: Tensor) -> Tensor:
        """[N, C] to [N, C]."""
        return activate_and_project(F.gelu, self.fc2, self.fc1(x))


class SwiGLU(nn.Module):
    """Two linear layers, one gated by SiLU of the other, and a third, [..., C] to [..., C].

    Shazeer, "GLU Variants Improve Transformer", 2020. With ``norm_cfg`` the gated channels are
    normalised (EVA-02).
    """

    def __init__(self, embed_dims: int, hidden_dims: int, norm_cfg: dict | None = None) -> None:
        super().__init__()
        self.fc1_g = nn.Linear(embed_dims, hidden_dims)
        self.fc1_x = nn.Linear(embed_dims, hidden_dims)
        self.norm = build_norm(norm_cfg, hidden_dims) if norm_cfg else None
        self.fc2 = nn.Linear(hidden_dims, embed_dims)

    def forward(self, x: Tensor) -> Tensor:
        return in_parts(self.forward_tokens, x.flatten(0, -2)).view(x.shape)

    def forward_tokens(self, x: Tensor) -> Tensor:
        """[N, C] to [N, C]."""
        gate, x = self.fc1_g(x), self.fc1_x(x)
        if self.norm is None:
            return activate_and_project(gated, self.fc2, gate, x)
        return self.fc2(self.norm(gated(gate, x)))


def gated(gate: Tensor, x: Tensor) -> Tensor:
    return F.silu(gate) * x


def activate_and_project(
    activation: Callable[..., Tensor], linear: nn.Module, *inputs: Tensor
) -> Tensor:
    """``linear(activation(*inputs))``, which keeps the inputs alone for backward.

    A layer for which calling it is more than its product, such as an adapter in its place or one
    with hooks, is called, and keeps its input.

    Args:
        activation: without parameters.
        linear: [N, hidden channels] to [N, C].
        inputs: [N, hidden channels] each.

    Returns:
        [N, C].
    """
    if torch.compiler.is_compiling() or not linear.training or not is_only_a_product(linear):
        return linear(activation(*inputs))
    weight, bias = linear.weight, linear.bias  # what autocast does within a product
    weight, bias = weight.to(inputs[0].dtype), None if bias is None else bias.to(inputs[0].dtype)
    return ActivateAndProject.apply(activation, weight, bias, *inputs)


def is_only_a_product(linear: nn.Module) -> bool:
    hooks = (
        linear._forward_hooks,
        linear._forward_pre_hooks,
        linear._backward_hooks,
        linear._backward_pre_hooks,
    )
    return type(linear) is nn.Linear and 'forward' not in vars(linear) and not any(hooks)


class ActivateAndProject(torch.autograd.Function):
    """``activate_and_project`` with the weight [C, hidden channels] and the bias [C]."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        activation: Callable[..., Tensor],
        weight: Tensor,
        bias: Tensor | None,
        *inputs: Tensor,
    ) -> Tensor:
        ctx.activation = activation
        ctx.save_for_backward(weight, *inputs)
        return F.linear(activation(*inputs), weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
        weight, *inputs = ctx.saved_tensors
        grad = grad.to(weight.dtype)  # another one where autocast rounds inputs of its own accord
        with torch.enable_grad():
            inputs = [x.detach().requires_grad_() for x in inputs]
            activated = ctx.activation(*inputs)
        _, of_weight, of_bias, *_ = ctx.needs_input_grad
        grad_weight = grad.T @ activated.detach() if of_weight else None
        grad_bias = grad.sum(0) if of_bias else None
        grad_inputs = torch.autograd.grad(activated, inputs, grad @ weight)
        return None, grad_weight, grad_bias, *grad_inputs
