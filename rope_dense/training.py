"""Train a model by its config, or print its recipe without training."""

import os
import shlex
from pathlib import Path
from typing import Unpack

from mmengine.config import Config
from mmengine.dist import is_main_process

from .data.labels.kept import in_use
from .project.building import building
from .project.checks.recipe import paragraph_text, recipe_text
from .project.checks.schedule import (
    check_processes,
    check_schedule,
    warn_of_random_weights,
    warn_of_sgd,
)
from .project.contents import task_of, used_loaders
from .project.launch import launch_runner, leave_group, run_training
from .project.load import Options, load_config
from .project.model import build_shapes
from .project.options import TrainingOptions, apply_training_options
from .project.own.fit import BACKBONE
from .project.own.settings import Given
from .project.own.tasks import Found, stored_settings
from .project.ready import ready
from .project.run import Run
from .project.weights import check_fetched_weights, say_class_rows, write_backbone
from .report.curves import read_summary
from .report.write import report_training


def train(
    config: str,
    *,
    own: Given | None = None,
    cfg_options: Options = (),
    work_dir: str | None = None,
    data_root: str | None = None,
    overwrite: bool = False,
    launcher: str = 'none',
    found: Found | None = None,
    **options: Unpack[TrainingOptions],
) -> Config:
    """Train, and report on the training of own data.

    Args:
        config, own, cfg_options, work_dir, data_root, found: see ``load_config``.
        overwrite: remove an earlier run from the work folder.
        launcher: of the processes of a distributed run.
        options: see ``apply_training_options``.

    Returns:
        The config.

    Raises:
        UsageError, CheckpointError, LoadError: settings, files or data that cannot be used.
    """
    if launcher != 'none':
        os.environ.setdefault('LOCAL_RANK', '0')
    cfg = load_config(config, cfg_options, work_dir, data_root, own, True, found)
    run = Run(Path(cfg.work_dir))
    with run.written(launcher) as is_first:
        with building('the config'):
            apply_training_options(cfg, launcher, **options)
            is_adapted = task_of(cfg) == 'features'
            if is_first:
                run.check_new(cfg, overwrite, [BACKBONE] if is_adapted else [])
            check_processes(cfg, launcher)
            check_schedule(cfg)
            model = ready(cfg, 'train', 'val').model
            recipe = recipe_text(cfg, model)
            warn_of_random_weights(cfg, model)
            warn_of_sgd(cfg, model)
        with in_use(files['ann_file'] for files in cfg.get('own_files', {}).values()):
            runner = launch_runner(cfg, launcher, trains=True)
            with building('the config'):
                check_fetched_weights(cfg, model)
            del model
            if is_main_process():
                print(recipe)
                if overwrite:
                    run.clear(cfg)
            run_training(runner)
        del runner
        leave_group()
        if is_first and is_adapted:
            write_backbone(cfg)
    if is_first:
        print(result_text(cfg), flush=True)
        report_training(cfg)
    return cfg


def result_text(cfg: Config) -> str:
    """The result of a training, and the next commands."""
    folder = shlex.quote(cfg.work_dir)
    own = stored_settings(cfg)
    task = task_of(cfg)
    if task == 'features':
        backbone = cfg.model.backbone
        commands = f'model.backbone.init_cfg.checkpoint={folder}/backbone.safetensors'
        if backbone.type == 'RoPEViT':
            start = f'--backbone {backbone.arch} --weights {folder}'
            commands = f'rope-dense train realtime --data DATA {start}'
    else:
        predict = 'predict-large' if own and own.tile else 'predict'
        test = 'test' if task == 'oriented' else 'report'
        commands = f'rope-dense {predict} {folder} PICTURES\n'
        commands += f'{"":11}rope-dense {test} {folder}'
    lines = read_summary(Path(cfg.work_dir)) | dict(next=commands)
    return '\n'.join(f'{name:<11}{text}' for name, text in lines.items())


def print_recipe(
    config: str,
    *,
    cfg_options: Options = (),
    work_dir: str | None = None,
    data_root: str | None = None,
    launcher: str = 'none',
    found: Found | None = None,
    **options: Unpack[TrainingOptions],
) -> None:
    """Print the recipe of a config; the model is built without memory for its weights.

    Also which rows of classes stay, if a file to start from is here.

    Args:
        config, cfg_options, work_dir, data_root, found: see ``load_config``.
        launcher, options: see ``apply_training_options``.

    Raises:
        UsageError, CheckpointError: the config or an option cannot be used.
    """
    cfg = load_config(config, cfg_options, work_dir, data_root, None, True, found)
    with building('the config'):
        used_loaders(cfg, 'train', 'val')
        used_loaders(cfg, 'test')
        apply_training_options(cfg, launcher, **options)
        check_schedule(cfg)
        model = build_shapes(cfg)
        say_class_rows(cfg, model)
        warn_of_random_weights(cfg, model)
        warn_of_sgd(cfg, model)
        recipe = recipe_text(cfg, model)
    print(paragraph_text('config', config))
    print(recipe)
