"""COCO: one JSON file of a split or of all images (https://cocodataset.org/#format-data)."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .coco_files import (
    CocoFile,
    best_file,
    candidates,
    chosen_files,
    id_of,
    load_coco,
    name_of,
)
from .coco_shapes import (
    ARE_CORNERS,
    CORNERS,
    NO_BOX,
    UNLIKE,
    Annotation,
    are_polygons,
    check_unlabelled,
    find_image,
    is_plain,
    part_of,
    relative_folder,
    split_one,
    stem_of,
)
from .files import class_name, class_names, errors_at, is_set, size_in
from .inventory import Inventory
from .objects import Format, LabelFolder, Labelled, Read, Report, Split

# Of labelme2coco and X-AnyLabeling.
PLACEHOLDERS = ('_background_', '__background__', '__ignore__')
LOOKED_AT = 10_000  # annotations, which tell what their numbers are
LEAST_BOXES = 4  # different ones, of which corners can be told from sizes
BEYOND = 1.1  # times the side of an image: no box reaches there by rounding
BEYOND_SHARE = 0.25  # of boxes of corners, read as sizes, reach there
FEDERATED = ('not_exhaustive_category_ids', 'neg_category_ids')  # of images of LVIS
NOT_WHOLE = 'image that is not labelled for all classes, as of LVIS (what is not, is background)'
NO_PLACE = 'object without a box, polygon or mask'
POINTS = 'object of key points without a box, which no box is made of'
SCORED = 'object with a score (of predictions? all are taken as labels)'


def find_coco(
    inventory: Inventory, train: str | None = None, val: str | None = None
) -> LabelFolder | None:
    """A COCO file of each split, or one of all images, which a hash of their names splits.

    Args:
        train, val: files that settings name, below the folder or absolute; of two splits, the
            other file is looked for as it is without settings.

    Raises:
        ValueError: files that cannot be used, or several that could be meant.
    """
    home, split_by = inventory.root, 'own.train and own.val'
    if train or val:
        files = named_files(inventory, train, val)
    else:
        home, files = chosen_files(inventory)
        paths = [relative_folder(file.path, inventory.root) for file in files.values()]
        split_by = ' and '.join(paths)
    if not files:
        return None
    splits = {}
    there, listed = set[Path](), set[Path | None]()
    for split, file in files.items():
        part = part_of(file, home, split, inventory)
        splits[split] = part
        images = inventory.images(part.images)
        there.update(images.by_path.values())
        listed.update(find_image(images, name) for name in file.image_names())
    if len(files) == 1:
        if not train:
            check_unlabelled(part, home, listed)
        splits, split_by = split_one(file, part)
    # What is of no split, such as images that no file lists, is counted once, in training.
    unlisted = [path.name for path in sorted(there - listed)]
    parts = {
        'train': replace(splits['train'], options=dict(unlisted=unlisted)),
        'val': replace(splits['val'], options=dict(counts=len(files) > 1)),
    }
    return LabelFolder(COCO, parts, split_by)


def named_files(
    inventory: Inventory, train: str | None, val: str | None
) -> dict[str, CocoFile]:
    """The COCO files that own.train and own.val name, below the folder of the data or absolute.

    One of them may be None: its file is looked for.
    """
    root, others = inventory.root, candidates(inventory)
    files = {}
    for split, given in (('train', train), ('val', val)):
        if not given:
            file = best_file(others, split)
        else:
            path = Path(os.path.normpath(root / given))
            if not inventory.is_file(path) and path.is_file():  # in another folder
                inventory.include(path)
            if not inventory.is_file(path):
                raise ValueError(f'{root / given}: no such file; check own.{split}')
            file = load_coco(path)
            file.check()
        if file is not None:
            files[split] = file
    if 'train' not in files:
        raise ValueError(
            f'{root}: no COCO file of the training split: name it by own.train'
        )
    return files


def read_coco(part: Split, classes: Sequence[str] | None, report: Report) -> Read:
    """The images of a COCO file; one without annotations has no objects.

    Ids may be of any type, and are used to tell what belongs together. Boxes are taken from
    outlines where they are missing; a box is rotated as ``attributes.rotation`` of CVAT says.
    `rbox`, or `bbox` of five numbers, is (x, y, w, h, angle), see ``Annotation``.
    """
    file = part.inventory.content(part.source, partial(load_coco, is_whole=True))
    file.check()
    names, used = categories_of(file, report)
    return classes or used, labelled_images(file, part, names, report)


def categories_of(
    file: CocoFile, report: Report
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The names of the categories by their ids, and the classes in the order of the file.

    Categories that stand for no class are left out if no object has them: Roboflow's first one,
    which is the name of the project, and the background of some converters.
    """
    path, given = file.path, file.content.get('categories')
    if not isinstance(given, list):
        raise ValueError(
            f'{path}: no list of categories, which has the names of the classes'
        )
    names = dict[str, str]()
    parents = {}
    for number, category in enumerate(given):
        with errors_at(path), errors_at(f'{path.name}, category number {number}'):
            if not isinstance(category, dict):
                raise ValueError(
                    f'it is {category!r:.80}, not {{"id": ..., "name": ...}}'
                )
            key, name = id_of(category['id']), category['name']
            text = '' if name is None else class_name(str(name))
            if not text or isinstance(name, (list, dict)):
                raise ValueError(f'the name of id {key} is {name!r:.80}')
            if names.setdefault(key, text) != text:
                raise ValueError(f'id {key} is of {names[key]!r} and of {text!r}')
            parents[key] = str(category.get('supercategory'))
    is_tree = len({*parents.values()}) > 1
    ids = dict[str, str]()
    for key, name in names.items():
        is_project = is_tree and key == next(iter(names)) and parents[key] == 'none'
        if key not in file.category_ids and (is_project or name in PLACEHOLDERS):
            report.note('category that is no class and has no object (left out)', name)
            continue
        other = ids.setdefault(name, key)
        if other != key:
            raise ValueError(f'{path}: categories {other} and {key} are both {name!r}')
    return names, class_names(tuple(ids), path)


def labelled_images(
    file: CocoFile, part: Split, names: dict[str, str], report: Report
) -> Iterator[Labelled]:
    """The images of a split that the file has."""
    images, num_outlines = part.inventory.images(part.images), 0
    with errors_at(file.path):
        entries = image_entries(file)
        check_coordinates(file, entries.values())
    counted = file.image_ids if part.options.get('counts', True) else ()
    for number, key in enumerate(counted):
        if key not in entries:
            name = file.annotation(number)['id']
            where = f'{file.path.name}, annotation {name}, image_id {key}'
            report.leave_out('object of an image that the file does not list', where)
    for entry in entries.values():
        image = find_image(images, entry.name)
        stem = images.stem_of(image) if image else stem_of(entry.name, images)
        if not part.has(stem):
            continue
        if image is None:
            report.leave_out_image(entry.name, len(entry.numbers))
            continue
        if not entry.is_whole:
            report.note(NOT_WHOLE, entry.name)
        with errors_at(file.path):
            item = labelled(image, file, entry, names, report)
        for shape in item.shapes:
            num_outlines += shape.outline is not None
        yield item
    for name in part.options.get('unlisted', ()):
        report.note('image that no COCO file lists (not labelled, so left out)', name)
    unlike, corners = report.count(UNLIKE), report.count(ARE_CORNERS)
    both = num_outlines - report.count(NO_BOX)
    if unlike + corners > max(1, both / 2):
        what = 'they are [left, top, right, bottom]: ' if corners > unlike else ''
        raise ValueError(
            f'{file.path}: {unlike + corners} of {both} boxes are unlike their polygons or masks; '
            f"{what}write COCO's [left, top, width, height] in bbox"
        )


class Entry(NamedTuple):
    """An image of a COCO file: its size (height, width), and the numbers of its annotations."""

    name: str
    size: tuple[int, int] | None
    is_whole: bool  # labelled for all classes
    numbers: list[int]


def image_entries(file: CocoFile) -> dict[str, Entry]:
    """The images by their ids; ValueError if two images have one id, or one has no name."""
    entries: dict[str, Entry] = {}
    for number, item in enumerate(file.content['images']):
        with errors_at(f'{file.path.name}, image number {number}'):
            if not isinstance(item, dict):
                raise ValueError(
                    f'it is {item!r:.80}, not {{"id": ..., "file_name": ...}}'
                )
            key, name = id_of(item['id']), name_of(item)
            if not name:
                raise ValueError("'file_name' is missing")
            is_whole = not any(map(item.get, FEDERATED))
            entry = Entry(name, size_in(item, 'height', 'width'), is_whole, [])
            other = entries.setdefault(key, entry).name
            if other != name:
                raise ValueError(f'id {key} is of {other} and of {name}')
    for number, key in enumerate(file.image_ids):
        if key in entries:
            entries[key].numbers.append(number)
    return entries


def check_coordinates(file: CocoFile, entries: Iterable[Entry]) -> None:
    """Refuse boxes and polygons in fractions of the image size, and boxes that are two corners."""
    pairs = ((entry, number) for entry in entries for number in entry.numbers)
    boxes = []
    farthest = [0.0]
    is_small = True  # the images are, of one or two pixels
    for entry, number in islice(pairs, LOOKED_AT):
        item = file.annotation(number)
        is_small &= bool(entry.size and max(entry.size) <= 2)
        if is_plain(item.get('bbox')) and item.get('bbox_mode') != CORNERS:
            boxes.append((*item['bbox'], *(entry.size or (0, 0))))
        polygons = item.get('segmentation') or ()
        if are_polygons(polygons):
            farthest += map(max, polygons)
    table = np.reshape(boxes, (-1, 6)).astype(float)
    largest = dict(boxes=table[:, :4].max(initial=0), polygons=max(farthest))
    for name, value in largest.items():
        if 0 < value <= 1 and not is_small:
            raise ValueError(
                f'all {name} are fractions of the image size (0 to 1), not in pixels'
            )
    left, top, width, height, image_height, image_width = table.T
    is_ordered = (left >= 0) & (left < width) & (top >= 0) & (top < height)
    is_within = (width <= image_width + 1) & (height <= image_height + 1)
    is_beyond = left + width > BEYOND * image_width
    is_beyond |= top + height > BEYOND * image_height
    are_corners = bool((is_ordered & is_within).all())
    is_varied = len(np.unique(table[:, :4], axis=0)) >= LEAST_BOXES or is_beyond.all()
    are_many = is_beyond.sum() >= max(2, BEYOND_SHARE * len(table))
    if are_corners and is_varied and are_many:
        raise ValueError(
            "boxes are [left, top, right, bottom], by which all are in their images, and by COCO's "
            '[left, top, width, height] most are not: write them so'
        )


def labelled(
    image: Path, file: CocoFile, entry: Entry, names: dict[str, str], report: Report
) -> Labelled:
    """An image with its objects."""
    item, info = Labelled(image, size=entry.size), file.content.get('info')
    convention = info.get('angle_version') if isinstance(info, dict) else None
    for given in map(file.annotation, entry.numbers):
        where = f'{file.path.name}, annotation {given["id"]}'
        with errors_at(where):
            key = id_of(given.get('category_id'))
            if key not in names:
                kind = f'object of category {key}, which the file does not list'
                item.leave_out(kind, where)
                continue
            if given.get('score') is not None:
                report.note(SCORED, where)
            annotation = Annotation(given, entry.size, convention, where, report)
            shape = annotation.shape(names[key])
            if shape is None:
                kind = POINTS if given.get('keypoints') else NO_PLACE
                item.leave_out(kind, where, names[key])
                continue
            shape.crowd = is_set(given.get('iscrowd')) or is_set(given.get('ignore'))
            shape.where = where
            item.shapes.append(shape)
    return item


COCO = Format('coco', 'COCO', ('.json',), find_coco, read_coco)
