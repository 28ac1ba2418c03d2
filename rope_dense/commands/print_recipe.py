"""Print the recipe of a config, to compare it with the paper.

The recipe covers data, model, position embedding, windows, parameter groups, schedule and
evaluation. Options are the same as for `rope-dense train`.

Examples:
    rope-dense print-recipe configs/dino_vitdet_rope_mixed.py
    rope-dense print-recipe detection --data DATA --epochs 20
"""

import argparse
from collections.abc import Sequence

from .arguments import ToolParser, add_common, add_training_options, values
from .own_settings import add_own_settings
from .own_settings import prepare as prepare


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    parser.add_argument(
        'config', help='config file; or a name, or a run, see rope-dense train'
    )
    add_training_options(parser)
    add_common(parser)
    add_own_settings(parser)
    args = parser.parse(argv)
    del args.overwrite  # nothing is written
    return args


def main(args: argparse.Namespace) -> None:
    from ..training import print_recipe

    print_recipe(**values(args))
