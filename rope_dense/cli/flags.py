"""What the flags of train.py and test.py change in a config."""

import copy
import os
from collections.abc import Iterator
from pathlib import Path

from mmengine.config import Config, ConfigDict
from mmengine.device import is_cuda_available, is_mlu_available, is_musa_available, is_npu_available

from .config import evaluators, items_of, leaf_datasets
from .errors import UsageError


def with_data_root(cfg: Config, data_root: str | Path) -> Config:
    """A copy of a config whose data sets and evaluators read from another folder (--data-root).

    Every `data_root` is replaced, and the start of every `ann_file` that lies in one.

    Raises:
        UsageError: the config has no `data_root`.
    """
    cfg = copy.deepcopy(cfg)
    nodes = list(_dicts(cfg._cfg_dict))
    roots = {node.data_root for node in nodes if node.get('data_root')}
    if not roots:
        raise UsageError(f'--data-root {data_root}: no data set of the config has a data_root')
    for node in nodes:
        if node.get('data_root'):
            node.data_root = str(data_root)
            continue
        for root in roots:
            if node.get('ann_file') and Path(node.ann_file).is_relative_to(root):
                node.ann_file = str(data_root / Path(node.ann_file).relative_to(root))
                break
    return cfg


def _dicts(node: object) -> Iterator[ConfigDict]:
    if isinstance(node, dict):
        yield node
    for _, item in items_of(node):
        yield from _dicts(item)


def enable_amp(cfg: Config, precision: str) -> None:
    """Train in mixed precision (--amp fp16, --amp bf16).

    Raises:
        UsageError: the optimizer wrapper is not one that can be exchanged.
    """
    wrapper = cfg.optim_wrapper
    if wrapper.type not in ('OptimWrapper', 'AmpOptimWrapper', 'BFloat16OptimWrapper'):
        raise UsageError(f'--amp: optim_wrapper.type is {wrapper.type!r}, it must be OptimWrapper')
    replaced = {name: wrapper.pop(name, None) for name in ('dtype', 'loss_scale')}
    if precision == 'bf16':
        wrapper.type = 'BFloat16OptimWrapper'
    else:
        scale = replaced['loss_scale'] or 'dynamic'
        wrapper.update(type='AmpOptimWrapper', dtype='float16', loss_scale=scale)


def check_amp(cfg: Config) -> None:
    """fp16 needs an accelerator: mmengine's AmpOptimWrapper refuses a CPU.

    Raises:
        UsageError: the config or --amp asks for it and there is none.
    """
    available = (is_cuda_available, is_npu_available, is_mlu_available, is_musa_available)
    if cfg.optim_wrapper.type == 'AmpOptimWrapper' and not any(
        is_available() for is_available in available
    ):
        raise UsageError(
            'mixed precision in fp16 (--amp, or AmpOptimWrapper in the config) needs a CUDA, NPU, '
            'MLU or MUSA device, and PyTorch finds none here. --amp bf16 works on a CPU too. Leave '
            '--amp out, or set --cfg-options optim_wrapper.type=OptimWrapper, to train in float32'
        )


def enable_ema(cfg: Config, momentum: float) -> None:
    """Keep, evaluate and save a moving average of the weights (--ema).

    Raises:
        UsageError: the momentum is not in (0, 1), or the config has an average of its own.
    """
    if not 0 < momentum < 1:
        raise UsageError(
            f'--ema {momentum}: the share of the new weights at each iteration, between 0 and 1'
        )
    hooks = cfg.get('custom_hooks') or []
    if any(hook['type'] == 'EMAHook' for hook in hooks):
        raise UsageError('--ema: custom_hooks of the config has an EMAHook already; change it')
    cfg.custom_hooks = [*hooks, dict(type='EMAHook', momentum=momentum)]


def enable_checkpointing(cfg: Config) -> None:
    """Recompute the backbone's blocks in backward to save memory (--with-cp)."""
    cfg.model.backbone.with_cp = True


def enable_fsdp(cfg: Config, launcher: str) -> None:
    """Shard weights, gradients and optimizer state over the processes (--fsdp).

    Raises:
        UsageError: there is one process only, or the config brings a runner or a moving average
            that sharding does not know.
    """
    if launcher == 'none':
        raise UsageError(
            '--fsdp shards over the processes of a distributed run: start it with '
            'tools/dist_train.sh or tools/slurm_train.sh'
        )
    if any(hook['type'] == 'EMAHook' for hook in cfg.get('custom_hooks') or []):
        raise UsageError('--fsdp: a moving average (--ema, EMAHook) needs whole weights; leave one')
    if cfg.get('runner_type') or cfg.get('strategy'):
        raise UsageError('--fsdp: the config has a runner_type or strategy of its own')
    cfg.runner_type = 'FlexibleRunner'
    cfg.strategy = dict(type='rope_dense.engine.fsdp.BlockFSDPStrategy')


def enable_auto_scale_lr(cfg: Config) -> None:
    """Scale the learning rate with the batch size (--auto-scale-lr).

    Raises:
        UsageError: the config does not say for which batch size its learning rate is.
    """
    if 'base_batch_size' not in (cfg.get('auto_scale_lr') or {}):
        raise UsageError(
            '--auto-scale-lr: the config does not say for how many images per iteration its '
            'learning rate is; give --cfg-options auto_scale_lr.base_batch_size=16, say'
        )
    cfg.auto_scale_lr.enable = True


def enable_tta(cfg: Config) -> None:
    """Test with the config's `tta_model` and `tta_pipeline` (--tta).

    Raises:
        UsageError: the config lacks one of them.
    """
    missing = [name for name in ('tta_model', 'tta_pipeline') if not cfg.get(name)]
    if missing:
        raise UsageError(
            f'--tta: the config has no {" and no ".join(missing)}; add them as in the flagship '
            'configs, or leave --tta out'
        )
    cfg.model = ConfigDict(cfg.tta_model, module=cfg.model)
    for _, dataset in leaf_datasets(cfg, 'test_dataloader'):
        dataset.pipeline = cfg.tta_pipeline


def save_predictions(cfg: Config, out: str) -> None:
    """Write predictions to `out` (--out): a pickle from mmdet, a folder of PNGs from mmseg.

    Raises:
        UsageError: `out` is no such name, or the config has no metric that can write.
    """
    metrics = evaluators(cfg, 'test_evaluator')
    if cfg.default_scope == 'mmdet':
        if not out.endswith(('.pkl', '.pickle')):
            raise UsageError(f'--out {out!r}: detections go to a pickle; give a name.pkl')
        dump = ConfigDict(type='DumpDetResults', out_file_path=out)
        cfg.test_evaluator = [*(metric for _, metric in metrics), dump]
        return
    if os.path.isfile(out):
        raise UsageError(f'--out {out!r} is a file; label images go to a folder')
    writers = [metric for _, metric in metrics if metric.type == 'IoUMetric']
    if not writers:
        raise UsageError('--out: only IoUMetric writes label images; test_evaluator has none')
    os.makedirs(out, exist_ok=True)  # IoUMetric's first process makes it too late for the others
    for metric in writers:
        metric.output_dir = out


def show_predictions(cfg: Config, show: bool, show_dir: str | None, wait_time: float) -> None:
    """Draw the predictions on every test image, in a window (--show) or to files (--show-dir).

    mmdet writes `show_dir`/<image>, mmseg `show_dir`/vis_data/vis_image/test_<image>_<number>.png.
    """
    kind = 'Det' if cfg.default_scope == 'mmdet' else 'Seg'
    hooks = cfg.setdefault('default_hooks', ConfigDict())
    hook = hooks.setdefault('visualization', ConfigDict(type=f'{kind}VisualizationHook'))
    hook.update(draw=True, interval=1, show=show, wait_time=wait_time)
    if not cfg.get('visualizer'):
        backends = [dict(type='LocalVisBackend')]
        cfg.visualizer = ConfigDict(type=f'{kind}LocalVisualizer', vis_backends=backends)
    if show_dir and kind == 'Det':
        hook.test_out_dir = os.path.abspath(show_dir)
    elif show_dir:
        cfg.visualizer.save_dir = os.path.abspath(show_dir)
