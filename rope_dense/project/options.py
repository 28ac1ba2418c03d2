"""Options of a training, which change its config.

Each function raises UsageError if the config or the machine does not support the option.
"""

import os
from pathlib import Path
from typing import TypedDict

from mmengine.config import Config, ConfigDict
from mmengine.device import get_device

from ..utils.errors import UsageError
from .own.recipes import keep_given
from .run import Run
from .weights import resolve_resume

WHOLE_WEIGHTS = ('EMAHook', 'BestRestartHook')  # hooks that load or average them


class TrainingOptions(TypedDict, total=False):
    """The options of ``apply_training_options`` by name, see ``add_training_options``."""

    amp: str | None
    ema: float | None
    with_cp: bool
    compile: bool
    fsdp: bool
    auto_scale_lr: bool
    load_from: str | None
    resume: str | None


def apply_training_options(
    cfg: Config,
    launcher: str = 'none',
    *,
    amp: str | None = None,
    ema: float | None = None,
    with_cp: bool = False,
    compile: bool = False,
    fsdp: bool = False,
    auto_scale_lr: bool = False,
    load_from: str | None = None,
    resume: str | None = None,
) -> None:
    """Change a config as the options of a training say.

    Args:
        launcher: of the processes of a distributed run.
        load_from: a checkpoint, or a run, whose best checkpoint it is.
        resume: a checkpoint, or a run, whose last checkpoint it is, or 'auto' for the last one in
            the work folder.
    """
    given = dict(
        amp=amp, ema=ema, with_cp=with_cp, compile=compile, auto_scale_lr=auto_scale_lr
    )
    keep_given(cfg, 'training', {name: value for name, value in given.items() if value})
    if amp:
        enable_amp(cfg, amp)
        device = get_device()
        if amp == 'fp16' and device in ('cpu', 'mps'):
            raise UsageError(
                f'--amp fp16: needs a GPU; on this machine ({device}) give --amp bf16'
            )
    if ema is not None:
        enable_ema(cfg, ema)
    if with_cp:
        cfg.model.backbone.with_cp = True
    if compile:
        enable_compile(cfg)
    if fsdp:
        enable_fsdp(cfg, launcher)
    if auto_scale_lr:
        cfg.auto_scale_lr = ConfigDict(cfg.get('auto_scale_lr') or {}, enable=True)
    if load_from:
        is_run = os.path.isdir(load_from)
        cfg.load_from = Run(Path(load_from)).best if is_run else load_from
    if resume:
        resolve_resume(cfg, Run(Path(resume)).last or resume)


def enable_amp(cfg: Config, precision: str) -> None:
    """--amp fp16, --amp bf16: train in mixed precision."""
    wrapper = cfg.optim_wrapper
    kind = wrapper.get('type', 'OptimWrapper')  # mmengine's default
    if kind not in ('OptimWrapper', 'AmpOptimWrapper', 'BFloat16OptimWrapper'):
        raise UsageError(
            f'--amp: optim_wrapper.type is {kind!r}, it must be OptimWrapper'
        )
    wrapper.pop('dtype', None)
    scale = wrapper.pop('loss_scale', None) or 'dynamic'
    if precision == 'bf16':
        wrapper.type = 'BFloat16OptimWrapper'
    else:
        wrapper.update(type='AmpOptimWrapper', dtype='float16', loss_scale=scale)


def enable_ema(cfg: Config, momentum: float) -> None:
    """--ema: keep, evaluate and save a moving average of the weights."""
    if has_hook(cfg, 'EMAHook'):
        raise UsageError(
            '--ema: custom_hooks of the config has an EMAHook already; change it'
        )
    hook = dict(type='EMAHook', momentum=momentum)
    cfg.custom_hooks = [*(cfg.get('custom_hooks') or []), hook]


def has_hook(cfg: Config, kind: str) -> bool:
    """True if custom_hooks of the config have a hook of this type."""
    return any(hook['type'] == kind for hook in cfg.get('custom_hooks') or [])


def enable_fsdp(cfg: Config, launcher: str) -> None:
    """--fsdp: shard weights, gradients and optimizer state over the processes."""
    if launcher == 'none':
        raise UsageError(
            '--fsdp: needs a distributed run, such as with tools/dist_train.sh'
        )
    found = [kind for kind in WHOLE_WEIGHTS if has_hook(cfg, kind)]
    if found:
        raise UsageError(
            f'--fsdp: {" and ".join(found)} of custom_hooks (--ema adds EMAHook) would need whole '
            'weights; take them out'
        )
    if cfg.get('runner_type') or cfg.get('strategy'):
        raise UsageError('--fsdp: the config has a runner_type or strategy of its own')
    cfg.runner_type = 'FlexibleRunner'
    cfg.strategy = dict(type='rope_dense.engine.fsdp.BlockFSDPStrategy')


def enable_compile(cfg: Config) -> None:
    """--compile: compile the backbone's blocks."""
    if not has_hook(cfg, 'CompileBlocksHook'):
        hook = dict(type='CompileBlocksHook')
        cfg.custom_hooks = [*(cfg.get('custom_hooks') or []), hook]
