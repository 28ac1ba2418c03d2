"""Parts of training that follow the published recipes."""

from importlib.util import find_spec

from .checkpoint_hook import AtomicCheckpointHook
from .fsdp import BlockFSDPStrategy, shard_backbone, shard_blocks
from .mask_annealing import MaskAnnealingHook
from .param_groups import NamedGroupsConstructor
from .subset_loss import SubsetLossHook
from .train_loop import ResumableTrainLoop
from .two_stage_warmup import TwoStageWarmupPolyLR

__all__ = [
    'AtomicCheckpointHook',
    'BlockFSDPStrategy',
    'MaskAnnealingHook',
    'NamedGroupsConstructor',
    'ResumableTrainLoop',
    'SubsetLossHook',
    'TwoStageWarmupPolyLR',
    'shard_backbone',
    'shard_blocks',
]

if find_spec('mmcv._ext'):  # mmcv with its operators
    from .bf16 import BFloat16OptimWrapper  # noqa: F401

    __all__ += ['BFloat16OptimWrapper']
