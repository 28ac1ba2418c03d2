"""Train a model by its config."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Unpack

from mmengine.config import Config
from mmengine.dist import is_main_process

from ..checks.data import check_data
from ..checks.model import build_model, check_image_sizes
from ..checks.recipe import recipe_text
from ..checks.training import check_schedule, warn_of_random_weights
from ..own.settings import started_processes
from ..project.building import building
from ..project.errors import UsageError
from ..project.launch import build_runner, run_training
from ..project.load import load_config, used_loaders
from ..project.weights import check_fetched_weights, check_initial_weights
from ..project.work_folder import check_work_folder, remove_training
from ..report.write import report_training
from ..utils.lock import exclusive
from .options import TrainingOptions, apply_training_options


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
    runner = build_runner(cfg, launcher)
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
    if is_main_process():
        report_training(cfg)
    return cfg


def check_processes(cfg: Config, launcher: str) -> None:
    """Compare the processes for which a recipe of own data was made with those that train.

    Raises:
        UsageError: they differ, so the epochs and the learning rate would be others.
    """
    made_for = (cfg.get('own') or {}).get('gpus')
    number = 1 if launcher == 'none' else started_processes() or 1
    if made_for not in (None, number):
        raise UsageError(
            f'own.gpus={made_for}: the schedule is for so many processes, and this training has '
            f'{number}: start {made_for} with --launcher, as tools/dist_train.sh does, or change it'
        )
