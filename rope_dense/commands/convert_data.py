r"""Convert annotations to COCO json, masks in colours to class numbers, or images to tiles.

Examples:
    rope-dense convert-data yolo data/own/labels/train data/own/annotations/train.json
    rope-dense convert-data voc VOC/Annotations data/own/train.json --val-share 0.2
    rope-dense convert-data voc VOC/Annotations test.json --split-file ImageSets/Main/test.txt
    rope-dense convert-data labelme FOLDER train.json --images FOLDER/images
    rope-dense convert-data cvat annotations.xml train.json --images images
    rope-dense convert-data geojson trees.geojson train.json --images tiles
    rope-dense convert-data coco old.json new.json --images train  # areas, clipped boxes
    rope-dense convert-data colours masks_in_colours data/own/masks/train \
        --classes classes.txt --images data/own/images/train
    rope-dense convert-data tiles train.json train_tiles --images train --tile 1024 --overlap 200

A report lists problems: images without objects, boxes outside the image or without area, unknown
classes, masks of another size than the image. Sources are not changed, and no file is overwritten.
classes.txt has one class per line, for masks with the colour: road #804080. See docs/own_data.md.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..project.find import check_ending, check_path
from ..utils.errors import UsageError
from .arguments import ToolParser, values

FORMATS = (
    'coco', 'yolo', 'voc', 'labelme', 'cvat', 'dota', 'createml', 'geojson', 'colours',
    'tiles',
)  # fmt: skip


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    parser.add_argument('format', choices=FORMATS, help='format of the source')
    parser.add_argument(
        'source',
        type=Path,
        help='folder of labels or masks; file of cvat, coco, createml, geojson',
    )
    parser.add_argument(
        'out', type=Path, help='NAME.json; for colours and tiles: a folder'
    )
    parser.add_argument(
        '--images', type=Path, help='folder of the images (beside the labels)'
    )
    parser.add_argument(
        '--classes',
        type=Path,
        help='file with one class per line, in the order of class numbers',
    )
    parser.add_argument(
        '--val-share',
        type=fraction,
        metavar='FRACTION',
        help='write about this fraction of the images, by a hash, to val.json beside NAME.json',
    )
    parser.add_argument(
        '--split-file',
        type=Path,
        metavar='FILE',
        help='use only the images listed here, one per line, such as ImageSets/Main/train.txt',
    )
    parser.add_number('--tile', 'tiles: side in pixels of an image', least=32)
    parser.add_number('--overlap', 'tiles: in pixels (a quarter of a tile)', least=0)
    parser.add_number(
        '--scales',
        'tiles: of images, such as 0.5 1 (1)',
        least=0.01,
        kind=float,
        nargs='+',
        default=[1.0],
    )
    parser.checks.append(check)
    return parser.parse(argv)


def check(args: argparse.Namespace) -> None:
    for path in filter(None, (args.source, args.images, args.classes, args.split_file)):
        check_path(path)
    is_tiles = args.format == 'tiles'
    has_tile = args.tile is not None
    if is_tiles != has_tile or (args.overlap or 0) >= (args.tile or 1):
        raise UsageError('--tile: give it for tiles, and --overlap with less')
    if is_tiles:
        return
    if args.format == 'colours' and (args.val_share or args.split_file):
        raise UsageError(
            '--val-share, --split-file: for boxes; give the masks of each split'
        )
    if args.format == 'colours':
        return
    check_ending('out', args.out, ['.json'])
    if args.val_share and args.out.name == 'val.json':
        raise UsageError(f'{args.out}: with --val-share, val.json is the other file')


def fraction(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(
            f'{text}: give a fraction between 0 and 1, such as 0.2'
        )
    return value


def main(args: argparse.Namespace) -> None:
    given = values(args)
    if args.format == 'tiles':
        from ..data.tiles.write_tiles import write_tiles

        for name in ('format', 'classes', 'val_share', 'split_file'):
            del given[name]
        write_tiles(**given)
        return
    from ..data.convert_data import convert_data

    for name in ('tile', 'overlap', 'scales'):
        del given[name]
    convert_data(**given)
