r"""Convert annotations to COCO json, or masks in colours to masks of class numbers.

Examples:
    python tools/convert_data.py yolo data/own/labels/train data/own/annotations/train.json
    python tools/convert_data.py voc VOC/Annotations data/own/train.json --val-share 0.2
    python tools/convert_data.py voc VOC/Annotations test.json --split-file ImageSets/Main/test.txt
    python tools/convert_data.py labelme FOLDER train.json --images FOLDER/images
    python tools/convert_data.py cvat annotations.xml train.json --images images
    python tools/convert_data.py coco old.json new.json --images train  # areas, clipped boxes
    python tools/convert_data.py colours masks_in_colours data/own/masks/train \
        --classes classes.txt --images data/own/images/train

A report lists problems: images without objects, boxes outside the image or without area, unknown
classes, masks of another size than the image. Sources are not changed, and no file is overwritten.
classes.txt has one class per line, for masks with the colour: road #804080. See docs/own_data.md.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..project.errors import UsageError
from .arguments import tool_parser

FORMATS = ('coco', 'yolo', 'voc', 'labelme', 'cvat', 'dota', 'colours')


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    parser.add_argument('format', choices=FORMATS, help='format of the source')
    parser.add_argument('source', type=Path, help='folder of labels or masks; file of cvat, coco')
    parser.add_argument('out', type=Path, help='NAME.json; for colours: folder of masks')
    parser.add_argument('--images', type=Path, help='folder of the images (beside the labels)')
    parser.add_argument(
        '--classes', type=Path, help='file with one class per line, in the order of class numbers'
    )
    parser.add_argument(
        '--val-share',
        type=float,
        metavar='SHARE',
        help='write a random share of the images to val.json beside NAME.json instead',
    )
    parser.add_argument(
        '--split-file',
        type=Path,
        metavar='FILE',
        help='use only the images listed here, one per line, such as ImageSets/Main/train.txt',
    )
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    if not args.source.exists():
        raise UsageError(f'{args.source}: no such file or folder')
    if args.format == 'colours':
        convert_colours(args)
    else:
        convert_boxes(args)


def convert_boxes(args: argparse.Namespace) -> None:
    """Write COCO json, of all images or without the --val-share."""
    from ..datasets.classes import read_classes
    from ..datasets.labels.canonical import write_coco
    from ..datasets.labels.conversion import convert, listed_names, split_entries
    from ..utils.atomic_write import atomic_write

    share = args.val_share
    if args.out.suffix != '.json':
        raise UsageError(f'{args.out}: give a name that ends with .json')
    if share is not None and not 0 < share < 1:
        raise UsageError(f'--val-share {share}: give a share between 0 and 1, such as 0.2')
    files = [args.out, *([args.out.with_name('val.json')] if share else [])]
    if existing := [file for file in files if file.exists()]:
        raise UsageError(f'{existing[0]} exists: nothing is written over; give another name')
    if len({*files}) < len(files):
        raise UsageError(f'{args.out}: with --val-share, val.json is the other file')
    classes = read_classes(args.classes)[0] if args.classes else None
    names = listed_names(args.split_file) if args.split_file else None
    found = convert(args.format, args.source, args.images, classes, names)
    parts = split_entries(found.entries, share) if share else [found.entries]
    for file, part in zip(files, parts, strict=True):
        with atomic_write(file) as partial:
            write_coco(partial, part, found.classes)
        print(f'{file}: {len(part)} images, {sum(len(objects) for _, objects in part)} objects')
    print(f'classes: {", ".join(found.classes)}')
    print(found.report)


def convert_colours(args: argparse.Namespace) -> None:
    """Write masks of class numbers, and classes.txt where none names the colours."""
    from ..datasets.classes import CLASSES_FILE, read_classes
    from ..datasets.mask_colours import colours_in, convert_masks
    from ..utils.atomic_write import atomic_write_text

    if args.val_share is not None:
        raise UsageError('--val-share is for boxes; give the masks of each split')
    if args.classes:
        colours = read_classes(args.classes)[1]
    else:
        listing = args.out / CLASSES_FILE
        if listing.exists():
            raise UsageError(f'{listing} exists: give it with --classes')
        colours = colours_in(args.source)
    count, odd = convert_masks(args.source, args.out, colours, args.images)
    print(f'{args.out}: {count} masks, {len(colours)} classes')
    if not args.classes:
        lines = [f'class_{i} #{bytes(colour).hex()}' for i, colour in enumerate(colours)]
        atomic_write_text(listing, '\n'.join(lines) + '\n')
        print(
            f'{listing}: the colours that were found; write the names of the classes in it and put '
            'it in the folder of the data set'
        )
    print(odd)
