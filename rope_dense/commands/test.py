"""Evaluate a checkpoint of a detector or a segmentor.

Examples:
    rope-dense test configs/dino_vitdet_rope_mixed.py work_dirs/a/iter_90000.pth
    rope-dense test configs/upernet_vit_rope_mixed.py iter_160000.pth --tta --out labels
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ..project.find import find_files
from .arguments import add_common_arguments, add_compile, parse, tool_parser, values


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    parser.add_argument('config', help='config file; or the folder of a run')
    parser.add_argument(
        'checkpoint', nargs='?', help='checkpoint file, https:// address or hf-hub:owner/name'
    )
    parser.add_argument(
        '--out',
        help='save the predictions: of a detector to a pickle (NAME.pkl), of a segmentor to a '
        'folder of label images (PNG, numbered as in the data set)',
    )
    parser.add_argument(
        '--tta', action='store_true', help="test-time augmentation by the config's tta_pipeline"
    )
    add_compile(parser)
    add_common_arguments(parser)
    args = parse(parser, argv)
    find_files(args.config, args.checkpoint)
    return args


def main(args: argparse.Namespace) -> None:
    from ..measure.evaluate import evaluate

    evaluate(**values(args))
