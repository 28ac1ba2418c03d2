"""Evaluate a checkpoint on the test data of its config."""

import sys
from collections.abc import Iterable, Mapping

from mmengine.config import Config, ConfigDict
from mmengine.dist import is_main_process

from ..project.building import building
from ..project.errors import UsageError
from ..project.launch import launch_runner, run_test
from ..project.load import find_model
from ..project.options import enable_compile
from ..project.parts import datasets_of
from ..project.ready import ready
from ..utils.config_parts import size_steps
from .saved_predictions import saved_predictions


def evaluate(
    config: str,
    checkpoint: str | None = None,
    *,
    out: str | None = None,
    tta: bool = False,
    compile: bool = False,
    cfg_options: Iterable[str] | Mapping[str, object] = (),
    work_dir: str | None = None,
    data_root: str | None = None,
    launcher: str = 'none',
) -> None:
    """Test a model; metrics are printed and logged in the work folder.

    Args:
        config, checkpoint, cfg_options, work_dir, data_root: see ``find_model``.
        out: file or folder of the predictions, see ``saved_predictions``.
        tta: augment test images, see ``enable_tta``.
        compile: compile the backbone's blocks.
        launcher: of the processes of a distributed run.

    Raises:
        UsageError, CheckpointError: settings, files or data that cannot be used.
    """
    cfg, weights = find_model(config, checkpoint, cfg_options, work_dir, data_root)
    if weights is None:
        raise UsageError('each of several tasks is tested with its own config')
    with building('the config'):
        cfg.load_from, cfg.resume = weights, False
        ready(cfg, 'test', weights=weights)
        if cfg.get('own_data') and is_main_process():
            print(cfg.own_data)
        if tta:
            enable_tta(cfg)
        if compile:
            enable_compile(cfg)
    with saved_predictions(cfg, out, launcher) as metrics:
        run_test(launch_runner(cfg, launcher), metrics)


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
            for _, step, _ in size_steps(pipeline)
            if 'Resize' in str(step.get('type'))
        ]
        for pipeline in (cfg.test_dataloader.dataset.get('pipeline'), cfg.tta_pipeline)
    )
    if tested and views and not min(views) <= tested[0] <= max(views):
        print(
            f'warning: --tta resizes to shorter sides of {min(views)} to {max(views)} pixels, the '
            f'test pipeline to {tested[0]}: set the scales of tta_pipeline',
            file=sys.stderr,
        )
