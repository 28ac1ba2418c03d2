"""Print the recipe of a config, to compare it with the paper.

The recipe covers data, model, position embedding, windows, parameter groups, schedule, evaluation,
and the expected result. Options are the same as for tools/train.py.

Examples:
    python tools/print_recipe.py configs/dino_vitdet_rope_mixed.py
    python tools/print_recipe.py configs/dino_vitdet_rope_mixed.py --flops
    python tools/print_recipe.py --list vitdet object    # the configs of the package, with results
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..utils.configs import CONFIGS
from .arguments import add_common_arguments, add_training_arguments, parse, tool_parser


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    parser.add_argument(
        'config',
        nargs='?',
        help='config file; or the name of a file of configs/own, such as detection',
    )
    parser.add_argument(
        '--list',
        nargs='*',
        metavar='WORD',
        help='list the configs that have all words in their method, backbone, task or result',
    )
    parser.add_argument(
        '--flops',
        action='store_true',
        help='run the model on one image and count its multiply-adds (takes up to minutes)',
    )
    parser.add_argument(
        '--size',
        nargs=2,
        type=int,
        metavar=('HEIGHT', 'WIDTH'),
        help="image size for --flops, in pixels (the config's test size)",
    )
    add_training_arguments(parser)
    add_common_arguments(parser)
    args = parse(parser, argv)
    if (args.config is None) == (args.list is None):
        parser.error('give a config or --list')
    if args.size and not args.flops:
        parser.error('--size is for --flops')
    return args


def main(args: argparse.Namespace) -> None:
    from ..checks.model import build_model, build_shapes
    from ..checks.random_weights import warn_of_random_weights
    from ..checks.recipe import entry, recipe_text
    from ..checks.schedule import check_schedule
    from ..measure.count import count_products, measured_size
    from ..project.building import building
    from ..project.load import load_config, used_loaders
    from ..research.config_list import config_table, list_configs, paper_result
    from ..training.options import TrainingOptions, apply_training_options

    if args.list is not None:
        print(config_table(list_configs(CONFIGS.parent, args.list)))
        return
    cfg = load_config(args.config, args.cfg_options, args.work_dir, args.data_root)
    with building('the config'):
        used_loaders(cfg, 'train', 'val')
        used_loaders(cfg, 'test')
        apply_training_options(
            cfg,
            args.launcher,
            **{name: getattr(args, name) for name in TrainingOptions.__annotations__},
        )
        check_schedule(cfg)
        model = build_model(cfg) if args.flops else build_shapes(cfg)
        warn_of_random_weights(cfg, model)
        recipe = recipe_text(cfg, model)
    print(entry('config', args.config))
    print(entry('paper', paper_result(Path(cfg.filename).resolve(), cfg)))
    print(recipe)
    if args.flops:
        height, width = args.size or measured_size(cfg)
        count = count_products(model, height=height, width=width)
        flops = f'{count.multiply_adds / 1e9:.1f} G multiply-adds at {height} x {width}'
        print(entry('FLOPs', flops))
        rotation = f'{count.rotations / 1e6:.1f} M complex products of queries and keys, besides'
        print(entry('rotation', rotation))
