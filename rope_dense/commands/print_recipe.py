"""Print the recipe of a config, to compare it with the paper.

The recipe covers data, model, position embedding, windows, parameter groups, schedule and
evaluation. Options are the same as for `rope-dense train`.

Examples:
    rope-dense print-recipe configs/dino_vitdet_rope_mixed.py
    rope-dense print-recipe detection --cfg-options own.data_root=data/own own.epochs=20
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ..project.find import find_config
from .arguments import add_common_arguments, add_training_arguments, parse, tool_parser, values


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    parser.add_argument(
        'config', help='config file; or the name of a file of configs/own, such as detection'
    )
    add_training_arguments(parser)
    add_common_arguments(parser)
    args = parse(parser, argv)
    find_config(args.config)
    del args.overwrite  # nothing is written
    return args


def main(args: argparse.Namespace) -> None:
    from ..training.print_recipe import print_recipe

    print_recipe(**values(args))
