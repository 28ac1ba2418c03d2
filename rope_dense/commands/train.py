"""Train a detector or a segmentor.

Examples:
    python tools/train.py configs/dino_vitdet_rope_mixed.py
    python tools/train.py configs/upernet_vit_rope_mixed.py --work-dir work_dirs/a --resume
    bash tools/dist_train.sh configs/upernet_vit_rope_mixed.py 8 --amp bf16
"""

import argparse
import sys
from collections.abc import Sequence

from command_line import add_common_arguments, add_training_arguments, parse, tool_parser


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    parser.add_argument('config', help='config file')
    add_training_arguments(parser)
    add_common_arguments(parser)
    return parse(parser, argv)


if __name__ == '__main__':
    parse_args(sys.argv[1:])  # answers --help and mistakes before the imports, which take seconds

from contextlib import nullcontext
from pathlib import Path

from mmengine.dist import is_main_process

from rope_dense.cli.checkpoints import check_initial_weights
from rope_dense.cli.config import load_config, used_loaders
from rope_dense.cli.data_checks import check_data
from rope_dense.cli.errors import command
from rope_dense.cli.flags import apply_training_options, with_data_root
from rope_dense.cli.launch import build_runner, train
from rope_dense.cli.model_checks import (
    build_model,
    build_optimizer,
    check_image_sizes,
    check_maps,
)
from rope_dense.cli.recipe import recipe_text
from rope_dense.cli.schedule import check_schedule
from rope_dense.cli.training_checks import check_save_best, warn_of_random_weights
from rope_dense.utils.lock import exclusive


@command
def main(argv: Sequence[str] | None = None) -> None:
    args = parse_args(argv)
    cfg = load_config(args.config, args.cfg_options, args.work_dir)
    if args.data_root:
        cfg = with_data_root(cfg, args.data_root)
    loaders = used_loaders(cfg, 'train', 'val')
    apply_training_options(cfg, args)
    check_schedule(cfg)
    check_save_best(cfg)
    model = build_model(cfg)
    build_optimizer(cfg, model)
    check_image_sizes(cfg, model, loaders)
    check_maps(cfg, model)
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


if __name__ == '__main__':
    sys.exit(main())
