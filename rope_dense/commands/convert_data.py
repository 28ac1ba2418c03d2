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
import json
import random
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
    from ..datasets.conversion import convert
    from ..datasets.own_data import read_classes
    from ..utils.atomic_write import atomic_write_text

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
    content, odd = convert(args.format, args.source, args.images, classes, names)
    if not content['images']:
        raise UsageError(f'{args.split_file}: none of the images that it names has labels')
    for file, part in zip(files, split(content, share), strict=True):
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_text(file, json.dumps(part) + '\n')
        print(f'{file}: {len(part["images"])} images, {len(part["annotations"])} objects')
    print(f'classes: {", ".join(category["name"] for category in content["categories"])}')
    print(odd)


def listed_names(file: Path) -> set[str]:
    """The first words of the lines of a file, without the suffixes of images."""
    from ..datasets.own_data import IMAGE_SUFFIXES

    lines = file.read_text(encoding='utf-8').splitlines()
    paths = [Path(line.split()[0]) for line in lines if line.strip()]
    return {
        (path.with_suffix('') if path.suffix.lower() in IMAGE_SUFFIXES else path).as_posix()
        for path in paths
    }


def split(content: dict, share: float | None) -> list[dict]:
    """The data set, or two of them: without and with a share of the images."""
    if share is None:
        return [content]
    numbers = [image['id'] for image in content['images']]
    count = min(max(1, round(share * len(numbers))), len(numbers) - 1)
    if count < 1:
        raise UsageError('--val-share: one image cannot be split')
    chosen = set(random.Random(0).sample(numbers, count))
    return [
        dict(
            content,
            images=[item for item in content['images'] if (item['id'] in chosen) is taken],
            annotations=[a for a in content['annotations'] if (a['image_id'] in chosen) is taken],
        )
        for taken in (False, True)
    ]


def convert_colours(args: argparse.Namespace) -> None:
    """Write masks of class numbers, and classes.txt where none names the colours."""
    from ..datasets.mask_colours import colours_in, convert_masks
    from ..datasets.own_data import CLASSES_FILE, read_classes
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
