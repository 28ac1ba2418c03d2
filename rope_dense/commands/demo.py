"""The demo: train a small real-time detector on shapes, test it at larger resolutions.

The test images of each resolution are rendered at that resolution from the same scenes, not
resized: objects grow with the image, so more objects count as medium or large. All files are
written to the work folder:

    data*/               the generated images
    training/            logs, checkpoints, and the results at all resolutions
    report/index.html    kinds of error, pictures, the loss curve
    results.json         written last, so the file exists only after a complete run

The exit status is 1 if the box AP50 at the training resolution misses the goal.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..utils.configs import CONFIGS
from .arguments import ToolParser, add_cfg_options, at_least, config_path, values

CONFIG = CONFIGS / 'demo' / 'deim_quick_shapes.py'


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    parser.add_argument(
        '--config',
        type=config_path,
        default=str(CONFIG),
        help='a detector config with `shapes`',
    )
    parser.add_argument(
        '--work-dir', type=Path, default=Path('work_dirs/demo'), help='(%(default)s)'
    )
    parser.add_argument(
        '--goal',
        type=at_least(0, float, 1),
        default=0.5,
        help='AP50 to reach (%(default)s)',
    )
    parser.add_switch(
        '--evaluate-only', 'do not train: use the last checkpoint of the work folder'
    )
    add_cfg_options(parser)
    return parser.parse(argv)


def main(args: argparse.Namespace) -> None:
    from ..demo import demo

    results = demo(**values(args))
    reached = results['resolutions'][0]['AP50']
    verdict = f'AP50 {reached:.3f} at the training resolution, goal'
    if not results['reached']:
        raise SystemExit(f'Goal missed: {verdict} {args.goal:.2f}')
    print(f'Goal reached: {verdict} {args.goal:.2f}')
