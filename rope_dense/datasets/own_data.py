"""The images, labels and classes of a data set of the user's own.

Folders and files are looked for under the names that are common (COCO, Roboflow, ADE20K), so that
most data sets need no setting but their folder.
"""

from __future__ import annotations

import colorsys
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

IMAGE_SUFFIXES = ('.jpg', '.jpeg', '.png', '.tif', '.tiff', '.bmp', '.webp')
MASK_SUFFIXES = ('.png', '.tif', '.tiff', '.bmp')
DEPTH_SUFFIXES = ('.png', '.tif', '.tiff', '.npy')
SPLITS = {
    'train': ('train2017', 'train', 'training'),
    'val': ('val2017', 'val', 'valid', 'validation', 'test'),
}
ANNOTATIONS = (
    'annotations/instances_{}.json',
    'annotations/{}.json',
    '{}.json',
    '{}/_annotations.coco.json',
)
IMAGE_FOLDERS = ('{}', 'images/{}', 'images', '{}/images', 'JPEGImages', '')
LABEL_FOLDERS = {'masks': ('annotations', 'masks', 'labels'), 'depth': ('depth', 'annotations')}
IGNORED = 255  # label of pixels that are neither trained nor evaluated
CLASSES_FILE = 'classes.txt'


@dataclass(frozen=True)
class CocoSplit:
    """One annotation file in COCO's format.

    Attributes:
        ann_file, images: file and folder of images, below the folder of the data set.
        classes: names of the categories, in the order of the file (mmdet numbers them so).
        with_objects: for each image that has objects, the set of their categories' names.
        num_images: with and without objects.
    """

    ann_file: str
    images: str
    classes: tuple[str, ...]
    with_objects: tuple[frozenset[str], ...]
    num_images: int

    def count(self, classes: Sequence[str]) -> int:
        """Images with an object of one of the classes."""
        return sum(not names.isdisjoint(classes) for names in self.with_objects)


def annotation_files(split: str) -> list[str]:
    """The common names of a split's annotation file, below the folder of the data set."""
    return [form.format(name) for name in SPLITS[split] for form in ANNOTATIONS]


def find_coco(root: Path, split: str, ann_file: str | None = None) -> CocoSplit:
    """The annotation file of a split and the folder of its images.

    Args:
        split: 'train' or 'val'.
        ann_file: the file below `root`, instead of one of the common names.

    Raises:
        ValueError: no such file, it is not in COCO's format, or its first image is nowhere.
    """
    looked_for = annotation_files(split) if ann_file is None else [ann_file]
    found = next((name for name in looked_for if (root / name).is_file()), None)
    if found is None:
        raise ValueError(
            f'{root}: no annotation file of {split}; looked for {", ".join(looked_for)}. Name it: '
            f'own.{split}=FILE, below data_root'
        )
    names, objects, files = read_coco_file(root / found)
    folders = [form.format(name) for form in IMAGE_FOLDERS for name in SPLITS[split]]
    folders = list(dict.fromkeys([*folders, str(Path(found).parent)]))
    images = next((name for name in folders if (root / name / files[0]).is_file()), None)
    if images is None:
        raise ValueError(
            f'{root / found}: its first image, {files[0]}, is in none of '
            f'{", ".join(name or "." for name in folders)} of {root}'
        )
    return CocoSplit(found, images, names, objects, len(files))


def coco_split(ann_file: Path, images: Path) -> CocoSplit:
    """A split whose annotation file and folder of images are known.

    Raises:
        ValueError: the file is not in COCO's format.
    """
    names, objects, files = read_coco_file(ann_file)
    return CocoSplit(str(ann_file), str(images.absolute()), names, objects, len(files))


def read_coco_file(
    path: Path,
) -> tuple[tuple[str, ...], tuple[frozenset[str], ...], list[str]]:
    """Names of the categories, their names in each image with objects, and all files of images.

    Raises:
        ValueError: the file is not in COCO's format, or has no image.
    """
    try:
        content = json.loads(path.read_text(encoding='utf-8'))
        names = {category['id']: category['name'] for category in content['categories']}
        objects: dict[int, set[str]] = {}
        for annotation in content['annotations']:
            objects.setdefault(annotation['image_id'], set()).add(names[annotation['category_id']])
        files = [image['file_name'] for image in content['images']]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f'{path} is not in COCO format, or cut off ({type(error).__name__}: {error})'
        ) from error
    if not files:
        raise ValueError(f'{path}: no image in it')
    return tuple(names.values()), tuple(map(frozenset, objects.values())), files


def choose_classes(
    train: CocoSplit, val: CocoSplit, given: Sequence[str] | None
) -> tuple[str, ...]:
    """The classes of both splits, in the order of their files.

    mmdet numbers classes by the categories of each annotation file, whatever the order of
    `metainfo.classes`: with two orders, one of them would be trained and the other evaluated.

    Args:
        given: names to be used, or None for all of the training file.

    Raises:
        ValueError: a class is no category of a file, or the files differ in their order.
    """
    wanted = train.classes if given is None else tuple(given)
    orders = []
    for split in (train, val):
        if unknown := sorted(set(wanted) - set(split.classes)):
            raise ValueError(
                f'classes {", ".join(unknown[:5])} are not categories of {split.ann_file}, which '
                f'has {", ".join(split.classes[:20])}'
            )
        orders.append(tuple(name for name in split.classes if name in wanted))
    if orders[0] != orders[1]:
        raise ValueError(
            f'{train.ann_file} and {val.ann_file} have their categories in different orders '
            f'({", ".join(orders[0][:5])} and {", ".join(orders[1][:5])}), by which mmdet numbers '
            'them: write both from one list'
        )
    return orders[0]


def find_masks(
    root: Path, split: str, folders: Sequence[str] | None = None, kind: str = 'masks'
) -> tuple[str, str]:
    """Folder of the images and folder of the masks of a split, below `root`.

    Args:
        kind: 'masks', or 'depth' for depth maps.

    Raises:
        ValueError: there is none of the common pairs, or not the given one.
    """
    pairs: list[tuple[str, str]] = [
        pair
        for name in SPLITS[split]
        for labels in LABEL_FOLDERS[kind]
        for pair in ((f'images/{name}', f'{labels}/{name}'), (f'{name}/images', f'{name}/{labels}'))
    ]
    if folders is not None:
        images, masks = folders
        pairs = [(images, masks)]
    found = next((pair for pair in pairs if all((root / name).is_dir() for name in pair)), None)
    if found is None:
        raise ValueError(
            f'{root}: no folders of images and {kind} of {split}; looked for '
            f'{", ".join(" with ".join(pair) for pair in pairs)}. Name them: '
            f'"own.{split}=[IMAGES,{kind.upper()}]", below data_root'
        )
    return found


def paired_files(
    images: Path, masks: Path, suffixes: Sequence[str] = MASK_SUFFIXES
) -> list[tuple[Path, Path]]:
    """(image, mask) of each image that has a mask of the same name, whatever their suffixes.

    Args:
        suffixes: of masks.

    Raises:
        ValueError: there is none; the message has the suffixes that were looked for and those that
            are there.
    """
    by_stem = {
        path.relative_to(masks).with_suffix(''): path
        for path in sorted(masks.rglob('*'))
        if path.suffix.lower() in suffixes
    }
    pairs = [
        (path, by_stem[stem])
        for path in sorted(images.rglob('*'))
        if path.suffix.lower() in IMAGE_SUFFIXES
        and (stem := path.relative_to(images).with_suffix('')) in by_stem
    ]
    if not pairs:
        raise ValueError(
            f'no image in {images} has a file of the same name in {masks}. Looked for images '
            f'{", ".join(IMAGE_SUFFIXES)} and labels {", ".join(suffixes)}; there are '
            f'{suffixes_in(images)} and {suffixes_in(masks)}'
        )
    return pairs


def suffixes_in(folder: Path) -> str:
    """The suffixes of the files in a folder, with their number: '12 .jpg, 3 .txt'."""
    counts: dict[str, int] = {}
    for path in folder.rglob('*'):
        if path.is_file():
            name = path.suffix or '(none)'
            counts[name] = counts.get(name, 0) + 1
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return ', '.join(f'{number} {name}' for name, number in ordered) or 'no files'


COLOUR_NUMBERS = re.compile(r'(.*?\S)[\s,:]+(\d+)[\s,]+(\d+)[\s,]+(\d+)')  # road 128 64 128


def read_classes(path: Path) -> tuple[tuple[str, ...], list[tuple[int, int, int]]]:
    """Names and colours (red, green, blue) of a classes.txt, in the order of the class numbers.

    A line is the name of a class, with a colour behind it or without: 'road #804080', or
    'road 128 64 128'. Classes without a colour get one that is not alike its neighbours'.

    Raises:
        ValueError: the file has no class, or one of them twice.
    """
    lines = [line.strip() for line in path.read_text(encoding='utf-8').splitlines()]
    names: list[str] = []
    palette: list[tuple[int, int, int]] = []
    for line in filter(None, lines):
        name, _, last = line.rpartition(' ')
        if name and last.startswith('#') and len(last) == 7:
            red, green, blue = bytes.fromhex(last[1:])
            palette.append((red, green, blue))
            names.append(name.strip())
        elif (given := COLOUR_NUMBERS.fullmatch(line)) and max(map(int, given.groups()[1:])) < 256:
            red, green, blue = map(int, given.groups()[1:])
            palette.append((red, green, blue))
            names.append(given[1])
        else:
            palette.append(distinct_colour(len(names)))
            names.append(line)
    if not names or len(set(names)) < len(names):
        raise ValueError(f'{path}: {"a class appears twice" if names else "no class in it"}')
    return tuple(names), palette


def distinct_colour(index: int) -> tuple[int, int, int]:
    """Colour (red, green, blue) number `index` of a sequence whose neighbours differ in hue."""
    hue = index * 0.618034 % 1
    value = (1.0, 0.75, 0.55)[index % 3]
    red, green, blue = (round(255 * part) for part in colorsys.hsv_to_rgb(hue, 0.75, value))
    return red, green, blue
