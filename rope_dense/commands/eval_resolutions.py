r"""Evaluate one model at many image sizes, frequency scalings and windows.

Prints a table during the run, and writes resolutions.json, .csv and .png to the work folder.
Finished results are reused: the same command resumes an interrupted run, also with more sizes.
The model is a detector, a segmentor, or a classifier (whose config `rope-dense research
eval-classification` writes).

Examples:
    rope-dense eval-resolutions work_dirs/cats --sizes 480 800 1200
    rope-dense eval-resolutions CONFIG last.pth --sizes 800 1200 --scaling none by_parts
    rope-dense eval-resolutions CONFIG last.pth --sizes 800 1200 --window 7 14 auto
    rope-dense eval-resolutions work_dirs/ships --tiles 512 1024   # of a run on tiles
"""

import argparse
from collections.abc import Sequence

from .arguments import (
    ToolParser,
    add_common,
    add_model,
    add_sizes,
    add_split,
    add_sweep_arguments,
    values,
)


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    add_model(parser)
    add_sizes(parser, "the size of the config's test images, which grows with --tiles")
    add_sweep_arguments(parser)
    parser.add_argument(
        '--slide',
        choices=['keep', 'scale', 'whole'],
        default='keep',
        help='crops of a segmentor that slides: keep them at every size (the backbone then never '
        'sees a larger map), scale them with the images, or test whole images (%(default)s)',
    )
    add_split(parser)
    add_common(parser)
    return parser.parse(argv)


def main(args: argparse.Namespace) -> None:
    from ..measure.sweep import evaluate_sizes

    evaluate_sizes(**values(args))
