"""Generate shapes in COCO and ADE20K layout, rotated, in four channels; or rooms with depth.

Examples:
    rope-dense research make-shapes data/shapes --train 400 --val 100 --size 160
    rope-dense research make-shapes data/rooms --layout depth --size 96 128
    rope-dense research make-shapes data/warm --layout warm
"""

import argparse
from collections.abc import Sequence

from rope_dense.commands.arguments import ToolParser


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    parser.add_argument(
        'out',
        help='folder to write; a shapes data set made from other settings is replaced',
    )
    parser.add_argument(
        '--train', type=int, default=400, help='training images (%(default)s)'
    )
    parser.add_argument(
        '--val', type=int, default=100, help='validation images (%(default)s)'
    )
    parser.add_list(
        '--size', 'PIXELS', 'side, or height and width (160)', type=int, default=[160]
    )
    parser.add_argument('--seed', type=int, default=0, help='(%(default)s)')
    parser.add_argument(
        '--colors',
        choices=['class', 'any'],
        default='class',
        help='what the hue of a shape follows (%(default)s)',
    )
    parser.add_argument(
        '--layout',
        nargs='+',
        choices=['coco', 'panoptic', 'ade', 'dota', 'depth', 'warm'],
        default=['coco', 'ade'],
        help='dota: rotated shapes; depth: rooms with depth in 16-bit millimetres; warm: circles '
        'whose class shows in a fourth channel only (coco ade)',
    )
    args = parser.parse_args(argv)
    args.size = tuple(args.size * 2 if len(args.size) == 1 else args.size)
    return args


def main(args: argparse.Namespace) -> None:
    from rope_dense.data.generated.shape_files import ShapesSettings, write_shapes

    settings = ShapesSettings(
        args.train,
        args.val,
        args.size,
        args.seed,
        colors=args.colors,
        layouts=tuple(args.layout),
    )
    written = write_shapes(args.out, settings)
    print(
        f'{args.out}: {"written" if written else "already there, from the same settings"}'
    )
