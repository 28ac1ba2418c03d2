"""Fully sharded data parallel training by PyTorch's ``fully_shard`` (FSDP2)."""

import os
from typing import Any

import torch
from mmengine._strategy import DDPStrategy, SingleDeviceStrategy
from mmengine.device import get_device
from mmengine.dist import is_main_process
from mmengine.model import BaseDataPreprocessor
from mmengine.registry import STRATEGIES
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from ..backbones.base import Backbone


@STRATEGIES.register_module()
class BlockFSDPStrategy(DDPStrategy):
    """Trains a model of which each process has a share of every parameter (--fsdp).

    Each block of our backbones is a unit, gathered when it runs; the rest of the model is another.
    As DTensors, parameters have the names and shapes of an unsharded model, so optimizers, groups
    and clipping are the same. Checkpoints too: a run with any number of processes, sharded or not,
    resumes from them. (torch.distributed.checkpoint would name the state of an optimizer by
    parameters.) Checked on two processes in test_distributed.py.

    mmengine's strategies are experimental, and its FSDPStrategy is for FSDP1.
    """

    def _wrap_model(self, model: nn.Module) -> nn.Module:
        model = self.convert_model(model)
        for module in list(model.modules()):
            if isinstance(module, BaseDataPreprocessor):
                module.to(get_device())  # it notes where data has to go
            if isinstance(module, Backbone):
                shard_blocks(module)
        fully_shard(model)
        return model

    def save_checkpoint(self, filename: str, **kwargs: object) -> None:
        """Gather in all processes, write in the first; see mmengine's BaseStrategy."""
        path = filename if is_main_process() else os.devnull
        SingleDeviceStrategy.save_checkpoint(self, path, **kwargs)

    def model_state_dict(self) -> dict:
        return gather_state(self.model.state_dict())

    def optim_state_dict(self) -> dict:
        return gather_state(super().optim_state_dict())

    def load_model_state_dict(self, state_dict: dict, **kwargs: object) -> None:
        """Load whole weights; see mmengine's BaseStrategy."""
        expected = self.model.state_dict()
        shards = {}
        for key, value in state_dict.items():
            shards[key] = shard_like(value, expected.get(key))
        super().load_model_state_dict(shards, **kwargs)

    def load_optim_state_dict(self, state_dict: dict) -> None:
        """Load the state of an optimizer of whole parameters."""
        numbers = all_params(state_dict['param_groups'])
        own = all_params(self.optim_wrapper.optimizer.param_groups)
        params = dict(zip(numbers, own, strict=False))  # PyTorch says where they differ
        state = {}
        for number, values in state_dict['state'].items():
            like = params.get(number)
            shards = {name: shard_like(value, like) for name, value in values.items()}
            state[number] = shards
        super().load_optim_state_dict(state_dict | {'state': state})


def all_params(groups: list[dict]) -> list:
    """The parameters of an optimizer, or their numbers in its state, group after group."""
    found: list = []
    for group in groups:
        found += group['params']
    return found


def gather_state(state: Any) -> Any:
    """A state with whole tensors on the CPU, in the first process; None for them in the others."""
    if isinstance(state, dict):
        return {key: gather_state(value) for key, value in state.items()}
    if isinstance(state, DTensor):
        state = state.full_tensor()
    if isinstance(state, Tensor):
        return state.cpu() if is_main_process() else None
    return state


def shard_like(value: object, like: Tensor | None) -> object:
    """A whole tensor sharded like ``like``, if that is a DTensor of its shape; else the value."""
    if not isinstance(like, DTensor) or not isinstance(value, Tensor):
        return value
    if value.shape != like.shape:
        return value
    return distribute_tensor(value, like.device_mesh, like.placements)


def shard_backbone(backbone: Backbone, **fully_shard_arguments: Any) -> None:
    """Shard a backbone in place by ``fully_shard``: each block is a unit, and the rest is another.

    A model around the backbone is sharded after it. Checked on two processes in
    tests/engine/test_distributed.py.
    """
    shard_blocks(backbone, **fully_shard_arguments)
    fully_shard(backbone, **fully_shard_arguments)


def shard_blocks(backbone: Backbone, **fully_shard_arguments: Any) -> None:
    """Shard the blocks of a backbone in place; its other parts belong to the model around it.

    A rotary embedding with parameters is a unit of its own, always in float32, as in any model:
    ``mp_policy`` casts what is gathered, which ``RotaryEmbedding`` itself cannot prevent. It
    remains gathered until its backward. Tokens that an embedding takes have the precision of the
    block.

    Args:
        fully_shard_arguments: of ``fully_shard``, such as ``mesh`` and ``mp_policy``.
    """
    float32 = MixedPrecisionPolicy(
        param_dtype=torch.float32, reduce_dtype=torch.float32, cast_forward_inputs=False
    )
    rope_arguments = fully_shard_arguments | dict(
        mp_policy=float32, reshard_after_forward=False
    )
    for block in backbone.ordered_blocks:
        rope = block.attn.rope
        if rope is not None and next(rope.parameters(), None) is not None:
            fully_shard(rope, **rope_arguments)
        fully_shard(block, **fully_shard_arguments)
