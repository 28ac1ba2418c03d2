"""Train a detector or a segmentor.

Examples:
    python tools/train.py configs/dino_vitdet_rope_mixed.py
    python tools/train.py configs/upernet_vit_rope_mixed.py --work-dir work_dirs/a --resume
    bash tools/dist_train.sh configs/upernet_vit_rope_mixed.py 8 --amp bf16
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from .arguments import add_common_arguments, add_training_arguments, parse, tool_parser


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    parser.add_argument('config', help='config file')
    add_training_arguments(parser)
    add_common_arguments(parser)
    return parse(parser, argv)


def main(args: argparse.Namespace) -> None:
    from mmengine.dist import is_main_process

    from ..checks.data import check_data
    from ..checks.model import build_model, check_image_sizes
    from ..checks.random_weights import warn_of_random_weights
    from ..checks.schedule import check_schedule
    from ..project.building import building
    from ..project.config import load_config, used_loaders
    from ..project.weights import check_initial_weights
    from ..utils.lock import exclusive
    from .launch import build_runner, train
    from .options import apply_training_options
    from .recipe import recipe_text
    from .report import report_training

    cfg = load_config(args.config, args.cfg_options, args.work_dir, args.data_root)
    with building('the config'):
        loaders = used_loaders(cfg, 'train', 'val')
        apply_training_options(cfg, args)
        check_schedule(cfg)
        model = build_model(cfg)
        check_image_sizes(cfg, model, loaders)
        check_initial_weights(cfg, model)
        check_data(cfg, loaders)
        recipe = recipe_text(cfg, model)
        warn_of_random_weights(cfg, model)
    del model
    runner = build_runner(cfg, args.launcher)
    if is_main_process():
        print(recipe)
    alone = exclusive(Path(cfg.work_dir) / 'training') if is_main_process() else nullcontext()
    with alone:
        train(runner)
    if is_main_process():
        report_training(cfg)
