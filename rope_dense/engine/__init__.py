"""Parts of training: parameter groups, exact resuming, checkpoints, bfloat16, sharding (fsdp).

Others import::

    checkpoint_hook: is_empty, model_of
    divergence: RunError, divergence_message
    figure_source: EVALUATED, FigureSource, has_faster_coco
    optimizer: group_table_text, role_of
    preemption: PreemptionHook, Stopped
    progress_hook: ProgressHook
    train_loop: set_epoch
"""

from .bf16 import BFloat16OptimWrapper
from .checkpoint_hook import (
    AtomicCheckpointHook,
    BestRestartHook,
    ResumableEarlyStoppingHook,
)
from .compile_hook import CompileBlocksHook
from .optimizer import NamedGroupsConstructor, TwoStageWarmupPolyLR
from .train_loop import ResumableTrainLoop

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
