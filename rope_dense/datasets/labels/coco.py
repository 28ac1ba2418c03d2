"""COCO: one JSON file of a split or of all images (https://cocodataset.org/#format-data)."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from .coco_files import check_coco, chosen_files, name_of
from .coco_images import (
    check_unlabelled,
    find_image,
    images_of,
    labels_of,
    relative,
    split_images,
    stem_of,
)
from .coco_shapes import (
    CORNERS,
    are_polygons,
    box_of,
    check_outlines,
    five_numbers,
    is_plain,
    outline_of,
    shape_of,
)
from .files import Images, class_names, is_set, naming, read_json, size_in
from .objects import Format, LabelFolder, Labelled, Labels, Read, Report
from .splits import is_for_validation

PLACEHOLDERS = ('_background_', '__background__', '__ignore__')  # of labelme2coco, X-AnyLabeling
LOOKED_AT = 10_000  # boxes, which tell what their numbers are
LEAST_BOXES = 4  # different ones, of which corners can be told from sizes
BEYOND = 1.1  # times the side of an image: no box reaches there by rounding
BEYOND_SHARE = 0.25  # of boxes of corners, read as sizes, reach there


def find_coco(root: Path) -> LabelFolder | None:
    """A COCO file of each split, or one of all images, which a hash of their names splits."""
    home, files = chosen_files(root)
    if not files:
        return None
    splits = {split: labels_of(file, home, split) for split, file in files.items()}
    names = [relative(file.path, root) for file in files.values()]
    listed, unlisted = images_of([(file, splits[split]) for split, file in files.items()])
    split_by = ' and '.join(names)
    if len(files) == 1:
        ((labels, file),) = zip(splits.values(), files.values(), strict=True)
        check_unlabelled(home, file.path, listed)
        splits, described = split_images(file, labels)
        split_by = f'{described}, of {names[0]}'
    options = dict(splits['train'].options, unlisted=unlisted)  # counted once, in training
    splits['train'] = replace(splits['train'], options=options)
    return LabelFolder(COCO, splits, split_by)


@dataclass
class Entry:
    """An image of a COCO file, and its annotations.

    Attributes:
        size: (height, width) in pixels; None if the file does not say it.
    """

    name: str
    size: tuple[int, int] | None
    annotations: list[dict[str, Any]] = field(default_factory=list)


def read_coco(labels: Labels, classes: Sequence[str] | None, report: Report) -> Read:
    """The images of a COCO file; one without annotations has no objects.

    Ids may be of any type, and are used to tell what belongs together. Boxes are taken from
    outlines where they are missing; a box is rotated as ``attributes.rotation`` of CVAT says.
    `rbox`, or `bbox` of five numbers, is (x, y, w, h, angle), see ``five_numbers``.
    """
    path = labels.source
    state = path.stat()
    content = content_of(path, state.st_size, state.st_mtime_ns)
    check_coco(path, content)
    for key in ('images', 'annotations'):
        if odd := [n for n, item in enumerate(content[key]) if not isinstance(item, dict)]:
            raise ValueError(f'{path}: number {odd[0]} of {key} is {content[key][odd[0]]!r}')
    names = category_names(content, path)

    def items() -> Iterator[Labelled]:
        with naming(path):
            entries = image_entries(content, path)
            assign(content, entries, labels, report)
            check_numbers(entries.values())
        for name in labels.options.get('unlisted', ()):
            report.note('image that no COCO file lists (not labelled, so left out)', name)
        num_outlines = 0
        images = Images(labels, Report())  # names have suffixes: a.jpg and a.png are no doubles
        for entry in entries.values():
            if labels.names is not None and stem_of(entry.name, images) not in labels.names:
                continue
            if (file := find_image(images, entry.name)) is None:
                report.leave_out_image(entry.name, len(entry.annotations))
            else:
                item = labelled(file, entry, names, path.name, convention_of(content), report)
                num_outlines += sum(shape.outline is not None for shape in item.shapes)
                yield item
            entry.annotations = []
        check_outlines(path, num_outlines, report)
        if labels.options.get('split') != 'train':  # of two splits of one file, the second is next
            release()

    return classes or used_classes(content, names, path, report), items()


@lru_cache(maxsize=1)
def content_of(path: Path, size: int, time: int) -> dict[str, Any]:
    """The content of a file, which is read for the classes and for the images.

    Without the garbage collector, which looks at all that is read so far again and again, a file of
    COCO's size (450 MB) takes 15 s, not 24 s; it takes 3.3 GB of memory.
    """
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        return read_json(path)
    finally:
        gc.freeze()
        if is_enabled:
            gc.enable()


def release() -> None:
    """Give back the memory of the content."""
    content_of.cache_clear()
    gc.unfreeze()


def convention_of(content: dict[str, Any]) -> str | None:
    """The convention of angles that a file names."""
    info = content.get('info')
    return info.get('angle_version') if isinstance(info, dict) else None


def id_of(value: Any) -> str:
    """An id as text: 1, 1.0 and '1' are the same; '01' is another one."""
    is_whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if is_whole else value).strip()


def category_names(content: dict[str, Any], path: Path) -> dict[str, str]:
    """The names of the categories by their ids.

    Raises:
        ValueError: there are none, one has no name, or two have one id.
    """
    if not isinstance(content.get('categories'), list):
        raise ValueError(f'{path}: no list of categories, which has the names of the classes')
    names: dict[str, str] = {}
    for number, category in enumerate(content['categories']):
        with naming(f'{path.name}, category number {number}'):
            if not isinstance(category, dict):
                raise ValueError(f'it is {category!r:.80}, not {{"id": ..., "name": ...}}')
            key, name = id_of(category['id']), category['name']
            text = '' if name is None else str(name).strip()
            if not text or isinstance(name, (list, dict)):
                raise ValueError(f'the name of id {key} is {name!r}')
            if names.setdefault(key, text) != text:
                raise ValueError(f'id {key} is of {names[key]!r} and of {text!r}')
    return names


def used_classes(
    content: dict[str, Any], names: dict[str, str], path: Path, report: Report
) -> tuple[str, ...]:
    """The names of the classes in the order of the file.

    Categories that stand for no class are left out if no object has them: Roboflow's first one,
    which is the name of the project, and the background of some converters.

    Raises:
        ValueError: none, or two of one name.
    """
    used = {id_of(item.get('category_id')) for item in content['annotations']}
    kinds = {id_of(item['id']): str(item.get('supercategory')) for item in content['categories']}
    first, is_root = next(iter(names), None), len({*kinds.values()}) > 1
    kept: dict[str, str] = {}
    for key, name in names.items():
        is_project = is_root and key == first and kinds[key] == 'none'
        if key not in used and (is_project or name in PLACEHOLDERS):
            report.note('category that is no class and has no object (left out)', name)
            continue
        if name in kept:
            raise ValueError(f'{path}: categories {kept[name]} and {key} are both {name!r}')
        kept[name] = key
    return class_names(tuple(kept), path)


def image_entries(content: dict[str, Any], path: Path) -> dict[str, Entry]:
    """The images by their ids.

    Raises:
        ValueError: two images have one id, or one has no name.
    """
    entries: dict[str, Entry] = {}
    for number, item in enumerate(content['images']):
        with naming(f'{path.name}, image number {number}'):
            key, name = id_of(item['id']), name_of(item)
            if not name:
                raise ValueError("'file_name' is missing")
            entry = entries.setdefault(key, Entry(name, size_in(item, 'height', 'width')))
            if entry.name != name:
                raise ValueError(f'id {key} is of {entry.name} and of {name}')
    return entries


def assign(
    content: dict[str, Any], entries: dict[str, Entry], labels: Labels, report: Report
) -> None:
    """Give each image its annotations; one that is in the file twice is taken once."""
    seen: dict[str, dict[str, Any]] = {}
    file, split = labels.source.name, labels.options.get('split')
    for number, item in enumerate(content['annotations']):
        name = id_of(item.setdefault('id', f'number {number}'))
        if seen.setdefault(name, item) is not item and seen[name] == item:
            report.note('annotation that is in the file twice (taken once)', f'{file}, {name}')
            continue
        key = id_of(item.get('image_id'))
        if key in entries:
            entries[key].annotations.append(item)
        # Of two splits by one file, one counts it.
        elif split is None or is_for_validation(key) == (split == 'val'):
            where = f'{file}, annotation {name}, image_id {key}'
            report.leave_out('object of an image that the file does not list', where)


def check_numbers(entries: Collection[Entry]) -> None:
    """Check that boxes are COCO's, [left, top, width, height] in pixels, and outlines in pixels.

    Raises:
        ValueError: all of the first ones are shares of the image, or boxes are two corners.
    """
    boxes = (
        (*item['bbox'], *(entry.size or (0, 0)))
        for entry in entries
        for item in entry.annotations
        if is_plain(item.get('bbox')) and item.get('bbox_mode') != CORNERS
    )
    coordinates = (
        max(points)
        for entry in entries
        for item in entry.annotations
        if are_polygons(outline := item.get('segmentation') or ())
        for points in outline
    )
    table = np.reshape([*islice(boxes, LOOKED_AT)], (-1, 6)).astype(float)
    left, top, width, height, image_height, image_width = table.T
    largest = table[:, :4].max(initial=0), max(islice(coordinates, LOOKED_AT), default=0)
    if not all(entry.size and max(entry.size) <= 2 for entry in entries):
        for name, value in zip(('boxes', 'outlines'), largest, strict=True):
            if 0 < value <= 1:
                raise ValueError(f'all {name} are shares of the image (0 to 1), not in pixels')
    is_within = (left >= 0) & (top >= 0) & (width <= image_width + 1) & (height <= image_height + 1)
    is_beyond = (left + width > BEYOND * image_width) | (top + height > BEYOND * image_height)
    are_corners = bool((is_within & (left < width) & (top < height)).all())
    is_varied = len(np.unique(table[:, :4], axis=0)) >= LEAST_BOXES
    is_varied |= bool(is_beyond.all())
    if are_corners and is_varied and is_beyond.sum() >= max(2, BEYOND_SHARE * len(table)):
        raise ValueError(
            "boxes are [left, top, right, bottom], by which all are in their images, and by COCO's "
            '[left, top, width, height] most are not: write them so'
        )


def labelled(
    file: Path,
    entry: Entry,
    names: dict[str, str],
    source: str,
    convention: str | None,
    report: Report,
) -> Labelled:
    """An image with its objects."""
    item = Labelled(file, size=entry.size)
    for annotation in entry.annotations:
        where = f'{source}, annotation {annotation["id"]}'
        with naming(where):
            key = id_of(annotation.get('category_id'))
            if key not in names:
                item.leave_out(f'object of category {key}, which the file does not list', where)
                continue
            outline = outline_of(annotation.get('segmentation'), entry.size, where, report)
            box = annotation.get('rbox') or annotation.get('bbox')
            if isinstance(box, list) and len(box) == 5:
                shape = five_numbers(names[key], box, convention)
            elif (box := box_of(annotation, outline, where, report)) is not None:
                shape = shape_of(annotation, names[key], box, outline)
            else:
                item.leave_out('object without a box and an outline', where, names[key])
                continue
            shape.crowd = is_set(annotation.get('iscrowd')) or is_set(annotation.get('ignore'))
            shape.where = where
            item.shapes.append(shape)
    return item


COCO = Format('coco', 'COCO', ('.json',), lambda inventory: find_coco(inventory.root), read_coco)
