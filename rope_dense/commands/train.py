"""Train a detector or a segmentor.

Examples:
    rope-dense train realtime --cfg-options own.data_root=DATA own.epochs=20     # docs/own_data.md
    rope-dense train configs/dino_vitdet_rope_mixed.py
    rope-dense train configs/upernet_vit_rope_mixed.py --work-dir work_dirs/a --resume
    bash tools/dist_train.sh configs/upernet_vit_rope_mixed.py 8 --amp bf16
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ..project.find import find_config
from .arguments import add_common_arguments, add_training_arguments, parse, tool_parser, values


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    parser.add_argument(
        'config',
        help='config file; or the name of a file of configs/own, such as detection',
    )
    add_training_arguments(parser)
    add_common_arguments(parser)
    args = parse(parser, argv)
    args.config = find_config(args.config)
    return args


def main(args: argparse.Namespace) -> None:
    from ..training.train import train

    train(**values(args))
