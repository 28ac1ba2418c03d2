"""Fully sharded data parallel training (FSDP) with parameter groups made from whole parameters."""

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
    StateDictType,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.utils import clip_grad_norm_

from rope_dense.backbones.shifted_windows import SwinBlock
from rope_dense.backbones.vit_block import ViTBlock


@STRATEGIES.register_module()
class BlockFSDPStrategy(FSDPStrategy):
    """mmengine's FSDPStrategy for our backbones: each block is gathered when it is needed.

    What mmengine's leaves to the user is settled here. Blocks of RoPEViT and RoPESwin are units of
    their own, the rest of the model is another. The optimizer's groups are made before parameters
    are sharded (a shard is a flat vector, so roles by shape or name would be lost). Gradients are
    clipped by the norm over all processes, not over each one's shards. Checkpoints are whole, with
    the weights as from DDP; their optimizer state only FSDP can resume.
    """

    def __init__(self, **kwargs: object) -> None:
        # Gathered in the first process. On a CPU, PyTorch 2.13 crashes when it offloads to it.
        how = dict(rank0_only=True, offload_to_cpu=torch.cuda.is_available())
        whole = dict(
            state_dict_type=StateDictType.FULL_STATE_DICT,
            state_dict_config=FullStateDictConfig(**how),
            optim_state_dict_config=FullOptimStateDictConfig(**how),
        )
        super().__init__(state_dict_cfg=whole, **kwargs)

    def prepare(
        self, model: nn.Module | dict, *, optim_wrapper: dict | None = None, **kwargs: object
    ) -> tuple | nn.Module:
        """Build what training needs; see mmengine's BaseStrategy.prepare."""
        whole = self.build_model(model)
        wrapper = None
        if optim_wrapper is not None:
            if optim_wrapper['type'] == 'AmpOptimWrapper':
                optim_wrapper['use_fsdp'] = True
            wrapper = build_optim_wrapper(whole, optim_wrapper)
        return super().prepare(whole, optim_wrapper=wrapper, **kwargs)

    def _wrap_model(self, model: nn.Module) -> nn.Module:
        cpu = not torch.cuda.is_available()
        self.model_wrapper = dict(
            type='MMFullyShardedDataParallel',
            auto_wrap_policy=ModuleWrapPolicy({ViTBlock, SwinBlock}),
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
        """Give each process its shard of the optimizer state of a whole checkpoint."""
        optimizer = self.optim_wrapper.optimizer
        self.optim_wrapper.load_state_dict(
            FullyShardedDataParallel.optim_state_dict_to_load(self.model, optimizer, state_dict)
        )
