"""Low-rank adapters (LoRA) of the linear layers of a backbone.

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models" (ICLR 2022). Checked in
tests/backbones/test_lora.py against W + alpha / rank * up @ down in float64.
"""

import math
from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..utils.validation import checked_integer, checked_number, refuse

LORA_DEFAULTS = dict(rank=8, alpha=16.0, targets=('qkv', 'proj'))


class LoRA(nn.Module):
    """An adapter: alpha / rank * up(down(x)), added to the output of a linear layer.

    It is the child ``lora`` of its layer, and a forward hook of the layer adds it: the layer stays
    what it is, with the keys of its weights. ``up`` starts at zero, so at first the output is
    unchanged.

    Args:
        linear: the layer.
        rank, alpha: see ``add_adapters``.

    Attributes:
        down: [rank, in_features].
        up: [out_features, rank].
    """

    def __init__(self, linear: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.scale = alpha / rank
        self.down = nn.Parameter(linear.weight.new_empty(rank, linear.in_features))
        self.up = nn.Parameter(linear.weight.new_zeros(linear.out_features, rank))
        # As PyTorch's linear layers.
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))
        self.handle = linear.register_forward_hook(self.add_to)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.linear(x, self.down), self.scale * self.up)

    def add_to(
        self, linear: nn.Linear, inputs: tuple[Tensor], output: Tensor
    ) -> Tensor:
        return output + self(*inputs)

    def weight(self) -> Tensor:
        """[out_features, in_features], what the adapter is in the weight of its layer."""
        return self.scale * self.up @ self.down

    def extra_repr(self) -> str:
        return f'rank={len(self.down)}, scale={self.scale:g}'


def add_adapters(
    blocks: Sequence[nn.Module], rank: int, alpha: float, targets: Sequence[str]
) -> None:
    """Give linear layers of some blocks an adapter each.

    Args:
        rank: columns of ``up`` and rows of ``down``.
        alpha: scale of an adapter, times ``rank``.
        targets: names of the layers in their modules, such as 'qkv', 'proj', 'fc1' and 'fc2'.

    Raises:
        ValueError: a value that is not allowed, or no block has such a layer.
    """
    checked_integer('lora: rank', rank, 1)
    checked_number('lora: alpha', alpha, above=0)
    linears = [
        (name.rpartition('.')[2], part)
        for block in blocks
        for name, part in block.named_modules()
        if isinstance(part, nn.Linear)
    ]
    names = list(dict.fromkeys(name for name, _ in linears))
    if (
        not isinstance(targets, (tuple, list))
        or not targets
        or not {*targets} <= {*names}
    ):
        refuse('lora: targets', targets, f'one or more of the linear layers {names}')
    for name, linear in linears:
        if name in targets:
            linear.lora = LoRA(linear, rank, alpha)


def find_adapters(model: nn.Module) -> dict[str, LoRA]:
    """The adapters of a model, under the names of their layers."""
    return {
        name.removesuffix('.lora'): part
        for name, part in model.named_modules()
        if isinstance(part, LoRA)
    }


@torch.no_grad()
def merge_adapters(model: nn.Module) -> None:
    """Add the adapters to the weights of their layers, and remove them."""
    for name, adapter in find_adapters(model).items():
        linear = cast('nn.Linear', model.get_submodule(name))
        linear.weight += adapter.weight()
        adapter.handle.remove()
        del linear.lora
