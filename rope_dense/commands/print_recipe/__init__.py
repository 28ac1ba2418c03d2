"""Print the recipe of a config, to compare it with the paper.

Data, model, position embedding, windows, parameter groups, schedule, evaluation, and the result to
expect. Options are those of tools/train.py.

Examples:
    python tools/print_recipe.py configs/dino_vitdet_rope_mixed.py
    python tools/print_recipe.py configs/dino_vitdet_rope_mixed.py --flops
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from command_line import add_common_arguments, add_training_arguments, parse, tool_parser


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    parser.add_argument('config', help='config file')
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
        help="of that image, in pixels (the config's test size)",
    )
    add_training_arguments(parser)
    add_common_arguments(parser)
    args = parse(parser, argv)
    if args.size and not args.flops:
        parser.error('--size is for --flops')
    return args


if __name__ == '__main__':
    parse_args(sys.argv[1:])  # answers --help and mistakes before the imports, which take seconds

from rope_dense.cli.config import load_config, used_loaders
from rope_dense.cli.errors import UsageError, command
from rope_dense.cli.flags import apply_training_options, with_data_root
from rope_dense.cli.model_checks import build_model, build_shapes
from rope_dense.cli.paper_results import paper_result
from rope_dense.cli.recipe import entry, recipe_text
from rope_dense.cli.schedule import check_schedule
from rope_dense.cli.training_checks import check_save_best, warn_of_random_weights
from rope_dense.profiling.complexity import count_products, measured_size


@command
def main(argv: Sequence[str] | None = None) -> None:
    args = parse_args(argv)
    cfg = load_config(args.config, args.cfg_options, args.work_dir)
    if args.data_root:
        cfg = with_data_root(cfg, args.data_root)
    used_loaders(cfg, 'train', 'val')
    used_loaders(cfg, 'test')
    apply_training_options(cfg, args)
    check_schedule(cfg)
    check_save_best(cfg)
    model = build_model(cfg) if args.flops else build_shapes(cfg)
    warn_of_random_weights(cfg, model)
    print(entry('config', args.config))
    print(entry('paper', paper_result(Path(args.config).resolve(), cfg)))
    print(recipe_text(cfg, model))
    if args.flops:
        try:
            height, width = args.size or measured_size(cfg)
        except ValueError as error:
            raise UsageError(f'{error}; or give --size HEIGHT WIDTH') from error
        if min(height, width) < 1:
            raise UsageError(f'--size {height} {width}: both must be 1 or more')
        count = count_products(model, height=height, width=width)
        flops = f'{count.multiply_adds / 1e9:.1f} G multiply-adds at {height} x {width}'
        print(entry('FLOPs', flops))
        rotation = f'{count.rotations / 1e6:.1f} M complex products of queries and keys, besides'
        print(entry('rotation', rotation))


if __name__ == '__main__':
    sys.exit(main())
