"""Train a model by its config."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Unpack

from mmengine.config import Config
from mmengine.dist import is_main_process

from ..project.building import building
from ..project.checks.data import check_data
from ..project.checks.image_sizes import check_image_sizes
from ..project.checks.summary import recipe_text
from ..project.checks.training import check_processes, check_schedule, warn_of_random_weights
from ..project.launch import build_runner, leave_group, run_training
from ..project.load import load_config
from ..project.model import build_model
from ..project.options import TrainingOptions, apply_training_options
from ..project.parts import used_loaders
from ..project.run import check_work_folder, remove_training
from ..project.weights import check_fetched_weights, check_initial_weights
from ..report.write import report_training
from ..utils.lock import exclusive


def train(
    config: str,
    *,
    own: Mapping[str, object] | None = None,
    cfg_options: Iterable[str] | Mapping[str, object] = (),
    work_dir: str | None = None,
    data_root: str | None = None,
    overwrite: bool = False,
    launcher: str = 'none',
    **options: Unpack[TrainingOptions],
) -> Config:
    """Train, and report on the training of own data.

    Args:
        config, own, cfg_options, work_dir, data_root: see ``load_config``.
        overwrite: remove an earlier training from the work folder.
        launcher: of the processes of a distributed run.
        options: see ``apply_training_options``.

    Returns:
        The config.

    Raises:
        UsageError, CheckpointError, LoadError: settings, files or data that cannot be used.
    """
    if launcher != 'none':
        os.environ.setdefault('LOCAL_RANK', '0')
    cfg = load_config(config, cfg_options, work_dir, data_root, own)
    with building('the config'):
        loaders = used_loaders(cfg, 'train', 'val')
        apply_training_options(cfg, launcher, **options)
        check_work_folder(cfg, overwrite)
        check_processes(cfg, launcher)
        check_schedule(cfg)
        model = build_model(cfg)
        check_image_sizes(cfg, model, loaders)
        check_initial_weights(cfg, model)
        check_data(cfg, loaders)
        recipe = recipe_text(cfg, model)
        warn_of_random_weights(cfg, model)
    runner = build_runner(cfg, launcher, trains=True)
    with building('the config'):
        check_fetched_weights(cfg, model)
    del model
    if is_main_process():
        print(recipe)
    alone = exclusive(Path(cfg.work_dir) / 'training') if is_main_process() else nullcontext()
    with alone:
        if overwrite and is_main_process():
            remove_training(Path(cfg.work_dir), Path(runner.log_dir))
        run_training(runner)
    is_first = is_main_process()
    del runner
    leave_group()
    if is_first:
        report_training(cfg)
    return cfg
