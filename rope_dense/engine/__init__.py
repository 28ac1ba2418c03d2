"""Parts of training that follow the published recipes. Sharded training is in ``engine.fsdp``."""

from importlib.util import find_spec

from .checkpoint_hook import AtomicCheckpointHook
from .param_groups import NamedGroupsConstructor
from .subset_loss import SubsetLossHook
from .train_loop import ResumableTrainLoop
from .two_stage_warmup import TwoStageWarmupPolyLR

__all__ = [
    'AtomicCheckpointHook',
    'NamedGroupsConstructor',
    'ResumableTrainLoop',
    'SubsetLossHook',
    'TwoStageWarmupPolyLR',
]

# Parts of mmengine that its documentation does not promise and that classes here override, set or
# call: one place to look at when mmengine changes. tests/engine/test_mmengine_parts.py finds each.
PRIVATE_PARTS = {
    'mmengine.hooks.CheckpointHook': ('_save_checkpoint_with_step', 'keep_ckpt_ids', 'last_ckpt'),
    'mmengine.runner.IterBasedTrainLoop': ('dataloader_iterator', 'skip_iter'),
    'mmengine.optim.DefaultOptimWrapperConstructor': ('_validate_cfg', 'base_lr', 'base_wd'),
    'mmengine.optim._ParamScheduler': ('_get_value', 'base_values', 'last_step'),
    'mmengine._strategy.SingleDeviceStrategy': (
        *('prepare', '_wrap_model', 'load_model_state_dict', 'load_optim_state_dict'),
        *('model_state_dict', 'optim_state_dict', 'save_checkpoint'),
    ),
    'mmengine._strategy.DDPStrategy': ('_wrap_model', 'convert_model', 'save_checkpoint'),
}

if find_spec('mmcv._ext'):  # mmcv with its operators
    from .bf16 import BFloat16OptimWrapper

    __all__ += ['BFloat16OptimWrapper']
