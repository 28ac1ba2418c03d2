"""Draw samples of a config's data pipeline: images after augmentation, with labels.

Examples:
    rope-dense browse-data detection --data DATA
    rope-dense browse-data CONFIG --split val --count 4 --out pictures
    rope-dense browse-data configs/own/realtime.py --epoch 10  # with mosaics

Each picture is one sample: boxes, masks or class colours drawn on the input pixels of the model, or
depth beside the pixels.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from .arguments import ToolParser, add_config, at_least, values
from .own_settings import add_own_settings
from .own_settings import prepare as prepare


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    parser.add_argument(
        'config', help='config file; or a name, or a run, see rope-dense train'
    )
    parser.add_argument(
        '--split',
        choices=['train', 'val', 'test'],
        default='train',
        help='(%(default)s)',
    )
    parser.add_argument(
        '--count', type=at_least(1), default=20, help='of samples (%(default)s)'
    )
    parser.add_argument(
        '--seed', type=int, default=0, help='augmentation seed (%(default)s)'
    )
    parser.add_argument(
        '--epoch',
        type=at_least(0),
        default=0,
        help='epoch, for pipelines with stages (%(default)s)',
    )
    parser.add_argument(
        '--out', type=Path, help='output folder (browse/SPLIT, in the work folder)'
    )
    add_config(parser)
    add_own_settings(parser)
    return parser.parse(argv)


def main(args: argparse.Namespace) -> None:
    from ..report.samples import browse

    files = browse(**values(args))
    print(f'{len(files)} samples of {args.split}: {files[0].parent}')
