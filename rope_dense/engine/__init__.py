"""Parts of training: parameter groups, exact resuming, checkpoints, bfloat16, sharding (fsdp)."""

from importlib.util import find_spec

from .checkpoint_hook import AtomicCheckpointHook
from .param_groups import NamedGroupsConstructor
from .train_loop import ResumableTrainLoop
from .two_stage_warmup import TwoStageWarmupPolyLR

__all__ = [
    'AtomicCheckpointHook',
    'NamedGroupsConstructor',
    'ResumableTrainLoop',
    'TwoStageWarmupPolyLR',
]

if find_spec('mmcv._ext'):  # mmcv with its operators
    from .bf16 import BFloat16OptimWrapper

    __all__ += ['BFloat16OptimWrapper']
