r"""Choose frequency scaling and window of a trained model for larger or smaller test images.

At each size, scalings and windows that the backbone allows are compared with the config's own on a
sample of the validation images. The one with the best metric is chosen if it is better beyond the
spread of a bootstrap over images; otherwise the config's own are kept. Writes choice.json,
choice.png and a config SIZE.py for each size to scaling/ in the work folder.

Examples:
    rope-dense choose-scaling work_dirs/cats --sizes 960 1280
    rope-dense choose-scaling CONFIG last.pth --sizes 800 1200 --images 500 --judge 500
    rope-dense test work_dirs/cats/scaling/960.py work_dirs/cats/best_coco_bbox_mAP_iter_900.pth
"""

import argparse
from collections.abc import Sequence

from .arguments import (
    ToolParser,
    add_config,
    add_model,
    add_sizes,
    add_split,
    values,
)


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    add_model(parser)
    add_sizes(parser, "1, 1.5 and 2 times the size of the config's test images")
    parser.add_number(
        '--images',
        'validation images that choose, drawn at random; all of fewer (%(default)s)',
        least=2,
        default=200,
        metavar='N',
    )
    parser.add_number(
        '--judge',
        'other validation images, on which a chosen setting is compared once more '
        '(%(default)s)',
        least=0,
        default=0,
        metavar='N',
    )
    parser.add_list(
        '--scaling',
        'SCALING',
        'try only these, as of eval-resolutions, beside the one of the config',
    )
    parser.add_list(
        '--window',
        'WINDOW',
        'try only these, as of eval-resolutions, beside the one of the config',
    )
    parser.add_number(
        '--draws', 'of the bootstrap (%(default)s)', least=100, default=1000
    )
    parser.add_number(
        '--seed', 'of images and bootstrap (%(default)s)', least=0, default=0
    )
    add_split(parser)
    add_config(parser)
    return parser.parse(argv)


def main(args: argparse.Namespace) -> None:
    from ..measure.choose import choose_scaling

    choose_scaling(**values(args))
