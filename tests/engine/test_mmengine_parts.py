"""Parts of mmengine that engine/ overrides beside its documented interface are still there."""

import inspect
import re
from importlib import import_module

import pytest
from mmengine._strategy import DDPStrategy
from mmengine.hooks import CheckpointHook
from mmengine.optim import DefaultOptimWrapperConstructor, _ParamScheduler
from mmengine.runner import IterBasedTrainLoop

from rope_dense.engine import (
    AtomicCheckpointHook,
    NamedGroupsConstructor,
    ResumableTrainLoop,
    TwoStageWarmupPolyLR,
)
from rope_dense.engine.fsdp import BlockFSDPStrategy

# Parts of mmengine that its documentation does not promise and that classes of engine/ override,
# set or call.
PRIVATE_PARTS = {
    'mmengine.hooks.CheckpointHook': (
        *('_save_checkpoint_with_step', 'keep_ckpt_ids', 'last_ckpt'),
        *('best_ckpt_path', 'best_ckpt', 'key_indicators'),
        *(
            '_save_best_checkpoint',
            '_init_rule',
            'init_value_map',
            'is_better_than',
            'rules',
        ),
    ),
    'mmengine.hooks.RuntimeInfoHook': ('max_iters',),
    'mmengine.runner.Runner': (
        '_resume',
        'load_checkpoint',
        'build_message_hub',
        'log_dir',
    ),
    'mmengine.runner.FlexibleRunner': ('_resume', 'build_message_hub', 'log_dir'),
    'mmengine.optim.OptimWrapper': ('base_param_settings',),
    'mmengine.runner.IterBasedTrainLoop': (
        *('dataloader_iterator', 'skip_iter', '_iter', '_max_iters', 'stop_training'),
        *('_decide_current_val_interval', 'val_begin', 'val_interval'),
    ),
    'mmengine.optim.DefaultOptimWrapperConstructor': (
        '_validate_cfg',
        'base_lr',
        'base_wd',
    ),
    'mmengine.optim._ParamScheduler': (
        *('_get_value', 'base_values', 'last_step', '_global_step', '_last_value'),
    ),
    'mmengine.hooks.EMAHook': (
        '_swap_ema_state_dict',
        '_swap_ema_parameters',
        'ema_model',
    ),
    'mmengine.hooks.EarlyStoppingHook': ('wait_count', 'best_score', 'stop_training'),
    'mmengine.logging.MessageHub': ('_log_scalars',),
    'mmengine.logging.HistoryBuffer': ('max_length',),
    'mmengine._strategy.SingleDeviceStrategy': (
        *('prepare', '_wrap_model', 'load_model_state_dict', 'load_optim_state_dict'),
        *('model_state_dict', 'optim_state_dict', 'save_checkpoint'),
    ),
    'mmengine._strategy.DDPStrategy': (
        '_wrap_model',
        'convert_model',
        'save_checkpoint',
    ),
}
OVERRIDES = {
    AtomicCheckpointHook: CheckpointHook,
    ResumableTrainLoop: IterBasedTrainLoop,
    NamedGroupsConstructor: DefaultOptimWrapperConstructor,
    TwoStageWarmupPolyLR: _ParamScheduler,
    BlockFSDPStrategy: DDPStrategy,
}


@pytest.mark.parametrize('name', PRIVATE_PARTS)
def test_each_part_is_in_the_class_that_is_said_to_have_it(name: str) -> None:
    """As a whole word of its source: methods, attributes and what it calls."""
    module, _, class_name = name.rpartition('.')
    *bases, _ = getattr(import_module(module), class_name).__mro__
    source = '\n'.join(inspect.getsource(base) for base in bases)
    for part in PRIVATE_PARTS[name]:
        assert re.search(rf'\b{part}\b', source), part


@pytest.mark.parametrize('ours, theirs', OVERRIDES.items())
def test_private_methods_are_called_as_ours_expect(ours: type, theirs: type) -> None:
    """A private method here replaces one of mmengine's, with the same arguments, and is named."""
    named = {part for parts in PRIVATE_PARTS.values() for part in parts}
    functions = {
        name for name, value in vars(ours).items() if inspect.isfunction(value)
    }
    own = {name for name in functions if re.fullmatch(r'_[a-z]\w+', name)}
    for name in own & {name for base in theirs.__mro__ for name in vars(base)}:
        assert name in named
        expected = inspect.signature(getattr(theirs, name)).parameters
        assert list(inspect.signature(getattr(ours, name)).parameters) == list(
            expected
        ), name
