"""Parts of training: parameter groups, exact resuming, checkpoints, bfloat16, sharding (fsdp)."""

from importlib.util import find_spec

from .best_restart import BestRestartHook
from .checkpoint_hook import AtomicCheckpointHook
from .compile_hook import CompileBlocksHook
from .param_groups import NamedGroupsConstructor
from .train_loop import ResumableTrainLoop
from .two_stage_warmup import TwoStageWarmupPolyLR

__all__ = [
    'AtomicCheckpointHook',
    'BestRestartHook',
    'CompileBlocksHook',
    'NamedGroupsConstructor',
    'ResumableTrainLoop',
    'TwoStageWarmupPolyLR',
]

if find_spec('mmcv._ext'):  # mmcv with its operators
    from .bf16 import BFloat16OptimWrapper

    __all__ += ['BFloat16OptimWrapper']
