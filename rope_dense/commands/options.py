"""Command line options that change a config.

Each function raises UsageError if the config or the machine does not support the option.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mmengine.config import Config, ConfigDict

from ..project.errors import UsageError
from ..project.load import datasets_of, evaluators
from ..project.task import detects, visualizer_of
from ..project.weights import resolve_resume
from ..utils.atomic_write import atomic_files
from ..utils.config_parts import nodes


def apply_training_options(cfg: Config, args: argparse.Namespace) -> None:
    """Change a config as the options of a training say.

    Args:
        args: of ``add_common_arguments`` and ``add_training_arguments``.
    """
    if args.amp:
        enable_amp(cfg, args.amp)
    if args.ema is not None:
        enable_ema(cfg, args.ema)
    if args.with_cp:
        cfg.model.backbone.with_cp = True
    if args.compile:
        enable_compile(cfg)
    if args.fsdp:
        enable_fsdp(cfg, args.launcher)
    if args.auto_scale_lr:
        cfg.auto_scale_lr = ConfigDict(cfg.get('auto_scale_lr') or {}, enable=True)
    if args.load_from:
        cfg.load_from = args.load_from
    if args.resume:
        resolve_resume(cfg, args.resume)


def enable_amp(cfg: Config, precision: str) -> None:
    """--amp fp16, --amp bf16: train in mixed precision."""
    wrapper = cfg.optim_wrapper
    kind = wrapper.get('type', 'OptimWrapper')  # mmengine's default
    if kind not in ('OptimWrapper', 'AmpOptimWrapper', 'BFloat16OptimWrapper'):
        raise UsageError(f'--amp: optim_wrapper.type is {kind!r}, it must be OptimWrapper')
    replaced = {name: wrapper.pop(name, None) for name in ('dtype', 'loss_scale')}
    if precision == 'bf16':
        wrapper.type = 'BFloat16OptimWrapper'
    else:
        scale = replaced['loss_scale'] or 'dynamic'
        wrapper.update(type='AmpOptimWrapper', dtype='float16', loss_scale=scale)


def enable_ema(cfg: Config, momentum: float) -> None:
    """--ema: keep, evaluate and save a moving average of the weights."""
    if has_average(cfg):
        raise UsageError('--ema: custom_hooks of the config has an EMAHook already; change it')
    cfg.custom_hooks = [*(cfg.get('custom_hooks') or []), dict(type='EMAHook', momentum=momentum)]


def has_average(cfg: Config) -> bool:
    """True if the config has a moving average of the weights."""
    return any(hook['type'] == 'EMAHook' for hook in cfg.get('custom_hooks') or [])


def enable_compile(cfg: Config) -> None:
    """--compile: compile the backbone's blocks."""
    hooks = cfg.get('custom_hooks') or []
    if all(hook['type'] != 'CompileBlocksHook' for hook in hooks):
        cfg.custom_hooks = [*hooks, dict(type='CompileBlocksHook')]


def enable_fsdp(cfg: Config, launcher: str) -> None:
    """--fsdp: shard weights, gradients and optimizer state over the processes."""
    if launcher == 'none':
        raise UsageError('--fsdp: needs a distributed run, such as with tools/dist_train.sh')
    if has_average(cfg):
        raise UsageError('--fsdp: a moving average (--ema, EMAHook) needs whole weights; leave one')
    if cfg.get('runner_type') or cfg.get('strategy'):
        raise UsageError('--fsdp: the config has a runner_type or strategy of its own')
    cfg.runner_type = 'FlexibleRunner'
    cfg.strategy = dict(type='rope_dense.engine.fsdp.BlockFSDPStrategy')


def enable_tta(cfg: Config) -> None:
    """--tta: test with the config's `tta_model` and `tta_pipeline`."""
    if not (cfg.get('tta_model') and cfg.get('tta_pipeline')):
        raise UsageError('--tta: the config lacks tta_model or tta_pipeline')
    warn_of_tta_sizes(cfg)
    cfg.model = ConfigDict(cfg.tta_model, module=cfg.model)
    for _, dataset in datasets_of(cfg, 'test_dataloader'):
        dataset.pipeline = cfg.tta_pipeline


def warn_of_tta_sizes(cfg: Config) -> None:
    """Print a warning where all views of an image are larger, or smaller, than its test size."""
    tested, views = (
        [
            step.scale if isinstance(step.scale, int) else min(step.scale)
            for _, step in nodes(pipeline)
            if 'Resize' in str(step.get('type')) and step.get('scale')
        ]
        for pipeline in (cfg.test_dataloader.dataset.get('pipeline'), cfg.tta_pipeline)
    )
    if tested and views and not min(views) <= tested[0] <= max(views):
        print(
            f'warning: --tta resizes to shorter sides of {min(views)} to {max(views)} pixels, the '
            f'test pipeline to {tested[0]}: set the scales of tta_pipeline',
            file=sys.stderr,
        )


@contextmanager
def saved_predictions(cfg: Config, out: str) -> Iterator[None]:
    """--out: let a test write its predictions, of mmdet to a pickle, of mmseg to PNGs in a folder.

    They appear when the test is complete.
    """
    metrics = [metric for _, metric in evaluators(cfg, 'test_evaluator')]
    with atomic_files(Path(out).parent if detects(cfg) else out) as partial:
        if detects(cfg):
            dump = ConfigDict(
                type='mmdet.DumpDetResults', out_file_path=str(partial / Path(out).name)
            )
            cfg.test_evaluator = [*metrics, dump]
        else:
            writers = [metric for metric in metrics if metric.type == 'IoUMetric']
            if not writers:
                raise UsageError('--out: only IoUMetric writes label images')
            for metric in writers:
                metric.output_dir = str(partial)
        yield


def show_predictions(cfg: Config, show: bool, show_dir: str | None, wait_time: float) -> None:
    """--show, --show-dir: draw the predictions on every test image, in a window or to files.

    mmdet writes `show_dir`/<image>, mmseg `show_dir`/vis_data/vis_image/test_<image>_<number>.png.
    """
    kind, package = ('Det', 'mmdet') if detects(cfg) else ('Seg', 'mmseg')
    hooks = cfg.setdefault('default_hooks', ConfigDict())
    hook = hooks.setdefault('visualization', ConfigDict(type=f'{package}.{kind}VisualizationHook'))
    hook.update(draw=True, interval=1, show=show, wait_time=wait_time)
    if not cfg.get('visualizer'):
        settings = visualizer_of(cfg, 'visualizer', alpha=0.8)  # mmseg's default
        cfg.visualizer = ConfigDict(settings, vis_backends=[dict(type='LocalVisBackend')])
    if show_dir and kind == 'Det':
        hook.test_out_dir = os.path.abspath(show_dir)
    elif show_dir:
        cfg.visualizer.save_dir = os.path.abspath(show_dir)
