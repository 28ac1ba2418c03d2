"""The demo: train a small real-time detector on shapes, test it at larger resolutions.

The test images of each resolution are rendered at that resolution from the same scenes, not
resized: objects grow with the image, so more objects count as medium or large. All files are
written to the work folder:

    data*/               the generated images
    training/            logs and checkpoints
    pictures/            validation images: true boxes on the left, predicted boxes on the right
    training_curve.png
    results.json         written last, so the file exists only after a complete run

The exit status is 1 if the box AP50 at the training resolution misses the goal.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..utils.configs import CONFIGS
from .arguments import add_cfg_options, tool_parser

CONFIG = CONFIGS / 'demo' / 'deim_quick_shapes.py'


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    parser.add_argument(
        '--config', type=Path, default=CONFIG, help='a detector config with a `shapes` entry'
    )
    parser.add_argument(
        '--work-dir', type=Path, default=Path('work_dirs/demo'), help='(%(default)s)'
    )
    parser.add_argument(
        '--goal', type=float, default=0.50, help='AP50 to reach, 0 to 1 (%(default)s)'
    )
    parser.add_argument(
        '--evaluate-only',
        action='store_true',
        help='do not train: use the last checkpoint of the work folder',
    )
    add_cfg_options(parser)
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    from ..measure.shapes_demo import run

    run(args)
