"""Parts of training: parameter groups, exact resuming, checkpoints, bfloat16, sharding (fsdp)."""

from .best_restart import BestRestartHook
from .bf16 import BFloat16OptimWrapper
from .checkpoint_hook import AtomicCheckpointHook
from .compile_hook import CompileBlocksHook
from .early_stopping import ResumableEarlyStoppingHook
from .param_groups import NamedGroupsConstructor
from .train_loop import ResumableTrainLoop
from .two_stage_warmup import TwoStageWarmupPolyLR

__all__ = [
    'AtomicCheckpointHook',
    'BFloat16OptimWrapper',
    'BestRestartHook',
    'CompileBlocksHook',
    'NamedGroupsConstructor',
    'ResumableEarlyStoppingHook',
    'ResumableTrainLoop',
    'TwoStageWarmupPolyLR',
]
