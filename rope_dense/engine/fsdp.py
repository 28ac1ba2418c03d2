"""Fully sharded data parallel training (FSDP) with parameter groups made before sharding."""

from __future__ import annotations

import os

import torch
from mmengine._strategy import FSDPStrategy
from mmengine.optim import OptimWrapper, build_optim_wrapper
from mmengine.registry import STRATEGIES
from torch import nn
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    StateDictType,
    fully_shard,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.utils import clip_grad_norm_

from ..backbones.base import Backbone
from ..backbones.block import Block


@STRATEGIES.register_module()
class BlockFSDPStrategy(FSDPStrategy):
    """mmengine's FSDPStrategy for our backbones: each block is gathered when it is needed.

    What mmengine's leaves to the user is settled here. Blocks are units of their own, with their
    frequencies; the rest of the model is another. The optimizer's groups are made before parameters
    are sharded (a shard is a flat vector, so roles by shape or name would be lost). Gradients are
    clipped by the norm over all processes, not over each one's shards. Checkpoints are complete,
    with the weights as from DDP; their optimizer state only FSDP can resume.
    """

    def __init__(self, **kwargs: object) -> None:
        # Gathered in the first process. On a CPU, PyTorch 2.13 crashes when it offloads to it.
        settings = dict(rank0_only=True, offload_to_cpu=torch.cuda.is_available())
        full_state = dict(
            state_dict_type=StateDictType.FULL_STATE_DICT,
            state_dict_config=FullStateDictConfig(**settings),
            optim_state_dict_config=FullOptimStateDictConfig(**settings),
        )
        super().__init__(state_dict_cfg=full_state, **kwargs)

    def prepare(
        self, model: nn.Module | dict, *, optim_wrapper: dict | None = None, **kwargs: object
    ) -> tuple | nn.Module:
        """Build what training needs; see mmengine's BaseStrategy.prepare."""
        unsharded = self.build_model(model)
        wrapper = None
        if optim_wrapper is not None:
            if optim_wrapper['type'] == 'AmpOptimWrapper':
                optim_wrapper['use_fsdp'] = True
            wrapper = build_optim_wrapper(unsharded, optim_wrapper)
        return super().prepare(unsharded, optim_wrapper=wrapper, **kwargs)

    def _wrap_model(self, model: nn.Module) -> nn.Module:
        cpu = not torch.cuda.is_available()
        self.model_wrapper = dict(
            type='MMFullyShardedDataParallel',
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            device_id=torch.device('cpu') if cpu else int(os.environ['LOCAL_RANK']),
            use_orig_params=True,
        )
        return super()._wrap_model(model)

    def build_optim_wrapper(self, optim_wrapper: OptimWrapper, model: nn.Module) -> OptimWrapper:
        """Put the sharded parameters of the same names into the groups."""
        shards = {
            name.replace('_fsdp_wrapped_module.', ''): param
            for name, param in model.named_parameters()
        }
        for group in optim_wrapper.optimizer.param_groups:  # there is no state yet
            group['params'] = [shards[self.id_to_name[id(param)]] for param in group['params']]
        if optim_wrapper.clip_grad_kwargs and optim_wrapper.clip_func is clip_grad_norm_:
            optim_wrapper.clip_func = lambda params, **limits: model.clip_grad_norm_(**limits)
        return optim_wrapper

    def load_optim_state_dict(self, state_dict: dict) -> None:
        """Give each process its shard of the optimizer state of a complete checkpoint."""
        optimizer = self.optim_wrapper.optimizer
        self.optim_wrapper.load_state_dict(
            FullyShardedDataParallel.optim_state_dict_to_load(self.model, optimizer, state_dict)
        )


def shard_backbone(backbone: Backbone, **fully_shard_arguments: object) -> None:
    """Shard a backbone in place by PyTorch's ``fully_shard`` (FSDP2): each block is a unit, and the
    rest is another.

    A rotary embedding with parameters is a unit of its own, in float32 whatever ``mp_policy`` is:
    in bfloat16 a frequency would have 8 bits, and the angle of the 64th token an error of up to
    0.1 radians. It stays gathered until its backward. An embedding that looks at tokens gets them
    in the precision of the block. A model around the backbone is sharded after it. Checked on two
    processes in tests/test_distributed.py.

    Args:
        fully_shard_arguments: of ``fully_shard``, such as ``mesh`` and ``mp_policy``.
    """
    float32 = MixedPrecisionPolicy(
        param_dtype=torch.float32, reduce_dtype=torch.float32, cast_forward_inputs=False
    )
    rope_arguments = dict(mp_policy=float32, reshard_after_forward=False)
    for block in backbone.ordered_blocks:
        rope = block.attn.rope
        if rope is not None and next(rope.parameters(), None) is not None:
            fully_shard(rope, **{**fully_shard_arguments, **rope_arguments})
        fully_shard(block, **fully_shard_arguments)
    fully_shard(backbone, **fully_shard_arguments)
