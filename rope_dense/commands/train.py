"""Train a detector or a segmentor.

Examples:
    rope-dense train realtime --data DATA --epochs 20     # docs/own_data.md
    rope-dense train work_dirs/realtime --resume --epochs 40
    rope-dense train configs/dino_vitdet_rope_mixed.py
    rope-dense train configs/upernet_vit_rope_mixed.py --work-dir work_dirs/a --resume
    bash tools/dist_train.sh configs/upernet_vit_rope_mixed.py 8 --amp bf16
"""

import argparse
from collections.abc import Sequence

from .arguments import ToolParser, add_common, add_training_options, values
from .own_settings import add_own_settings
from .own_settings import prepare as prepare


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    parser.add_argument(
        'config', help='a config; a task of configs/own such as realtime; or a run'
    )
    add_training_options(parser)
    add_common(parser)
    add_own_settings(parser)
    return parser.parse(argv)


def main(args: argparse.Namespace) -> None:
    from ..training import train

    train(**values(args))
