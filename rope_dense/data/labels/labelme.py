"""LabelMe and X-AnyLabeling: a JSON file for each image, beside it or in a folder apart.

The format was compared with LabelMe's reader and writer, labelme/_label_file.py.
"""

import base64
import io
import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from . import geometry
from .files import (
    errors_at,
    finite_numbers,
    is_set,
    read_json,
    read_text,
    size_in,
)
from .inventory import Inventory
from .label_folder import Format, LabelFolder, Read, Split
from .objects import Labelled, Report, Shape
from .pairs import LOOKED_AT, find_pairs, read_pairs
from .places import FileKind
from .splits import split_files

POLYGONS = ('polygon', 'rectangle', 'rotation', 'oriented_rectangle', 'quadrilateral')
# Of labels.txt, for pixels of no object.
BACKGROUND = ('_background_', '__background__')
IGNORE = '__ignore__'
INSIDE = (
    'its image is in it only, as imageData: save it as a file of the name in imagePath'
)
OTHER_JSON = 'JSON file that is not of LabelMe, and has no image (left out)'
JOINED = 'shape joined with another one of its label and group_id (one object)'
SLACK = 2  # pixels between the size of a mask and the distance of its points
FULL = 0.98  # of its box is covered by an upright rectangle, whose corners are rounded


def find_labelme(inventory: Inventory) -> LabelFolder | None:
    """JSON files beside images or in a folder apart, in train/ and val/ or split by a hash.

    ValueError for files without images, which are in the files.
    """
    pairs = find_pairs(inventory, FILES)
    if pairs:
        return LabelFolder(LABELME, *split_files(pairs, inventory))
    for path in inventory.below(inventory.root, FILES.suffixes)[:LOOKED_AT]:
        if is_labelme(path) and read_json(path).get('imageData'):
            raise ValueError(f'{path}: {INSIDE}')
    return None


def read_labelme(part: Split, classes: Sequence[str] | None, report: Report) -> Read:
    """The images with a JSON file; one without shapes has no objects."""

    def read(path: Path, image: Path) -> Labelled:
        with errors_at(path):
            return labelled(path, image, part, report)

    def count(path: Path) -> int | None:
        content = read_json(path)
        if isinstance(content, dict) and isinstance(content.get('shapes'), list):
            if content.get('imageData'):
                report.note(INSIDE, path.name)
            return len(content['shapes'])
        report.note(OTHER_JSON, path.name)
        return None

    return classes or (), read_pairs(part, FILES, report, read, count)


def is_labelme(path: Path) -> bool:
    """Return whether a JSON file is LabelMe's, or would be if it were not broken.

    COCO's files, which are large, are not parsed.
    """
    try:
        text = read_text(path)
        content = json.loads(text) if '"shapes"' in text else None
    except json.JSONDecodeError:
        return True
    except ValueError:  # of another encoding
        return b'"shapes"' in path.read_bytes()
    return isinstance(content, dict) and 'shapes' in content


def read_image_name(path: Path) -> str | None:
    """The ``imagePath`` of a file."""
    try:
        content = read_json(path)
    except ValueError:  # the reader says it
        return None
    name = content.get('imagePath') if isinstance(content, dict) else None
    if isinstance(name, str) and name:
        return name
    return None


def labelled(path: Path, image: Path, part: Split, report: Report) -> Labelled:
    """An image with the objects of its JSON file: shapes of one label and ``group_id`` are one."""
    content = read_json(path)
    shapes = content.get('shapes') if isinstance(content, dict) else None
    if not isinstance(shapes, list):
        raise ValueError("no list of 'shapes', as LabelMe writes it")
    boxes = set()  # groups with an object
    for number, given in enumerate(shapes, start=1):
        if not isinstance(given, dict):
            raise ValueError(f'shape {number} is {given!r:.80}')
        if given.get('shape_type') != 'point':
            boxes.add(given.get('group_id'))
    item = Labelled(image, size=size_in(content, 'imageHeight', 'imageWidth'))
    groups = dict[tuple[str, Any], Shape]()
    for number, given in enumerate(shapes, start=1):
        where = f'{path.name}, shape {number}'
        group = given.get('group_id')
        with errors_at(where):
            is_point = given.get('shape_type') == 'point'
            if is_point and group is not None and group in boxes:
                report.note('key point in a group with an object (left out)', where)
                continue
            if str(given.get('label')).strip() in BACKGROUND:
                kind = 'shape of the background, which is no class (left out)'
                report.note(kind, where)
                continue
            shape = shape_of(given, item, where, part)
            if isinstance(shape, str):
                item.leave_out(shape, where, str(given.get('label') or ''))
            elif group is not None and (shape.label, group) in groups:
                add_part(groups[shape.label, group], shape)
                report.note(JOINED, where)
            else:
                groups[shape.label, group] = shape
                item.shapes.append(shape)
    return item


def shape_of(
    given: dict[str, Any],
    item: Labelled,
    where: str,
    part: Split,
) -> Shape | str:
    """The object of a shape; the reason to leave it out if it has no area or no label."""
    label = given.get('label')
    flags = given.get('flags')
    has_name = label is not None and not isinstance(label, (list, dict))
    name = ''
    if has_name:
        name = str(label).strip()
    if not name:
        return 'object without a label'
    if name == IGNORE:
        return f'object of {IGNORE}, which is no class'
    is_flagged = isinstance(flags, dict) and is_set(flags.get('difficult'))
    is_difficult = is_flagged or is_set(given.get('difficult'))
    more: dict[str, Any] = dict(where=where, crowd=is_difficult)
    kind = given.get('shape_type') or 'polygon'
    pairs = given.get('points') or []
    is_list = isinstance(pairs, list)
    if not is_list or not all(isinstance(p, list) and len(p) == 2 for p in pairs):
        raise ValueError(f'points are {pairs!r:.80}, not [[x, y], ...]')
    points = np.reshape(finite_numbers([*chain(*pairs)], 'a point'), (-1, 2))
    count = len(points)
    if kind == 'mask':
        return mask_of(given, name, points, item, part, more)
    if kind == 'rectangle' and count in (2, 4):
        box = geometry.bounding_box(points)
        x, y = points.T
        area = abs(x @ np.roll(y, 1) - y @ np.roll(x, 1)) / 2  # shoelace formula
        *_, width, height = box
        if count == 2 or area >= FULL * width * height:
            return Shape(name, box, **more)
    if kind == 'circle' and count == 2:
        x, y = points[0]
        radius = float(np.linalg.norm(points[1] - points[0]))
        corners = geometry.ellipse(x, y, radius, radius)
        return geometry.polygon_shape(name, corners, **more)
    if kind in POLYGONS and count > 2:
        return geometry.polygon_shape(name, points, **more)
    if kind in POLYGONS or kind == 'circle':
        return f'{kind} of {count} points'
    return f'object of type {kind}'


def mask_of(
    given: dict[str, Any],
    label: str,
    ends: np.ndarray,
    item: Labelled,
    part: Split,
    more: dict,
) -> Shape | str:
    """An object from a PNG in base64 whose first pixel is at the first of ``ends``; ValueError."""
    text = given.get('mask')
    if not text:
        return 'mask without its PNG'
    if not isinstance(text, str):
        raise ValueError(f'its mask is {text!r:.80}, no PNG in base64')
    picture = part.inventory.header(item.file)
    file = io.BytesIO(base64.b64decode(text.rpartition(',')[2]))
    try:
        with Image.open(file) as image:
            geometry.check_mask(*image.size, picture)
            mask = np.asarray(image if image.mode in '1LP' else image.convert('L'))
    except Image.DecompressionBombError as error:
        raise ValueError(
            f'a mask of many more pixels than its image ({error})'
        ) from error
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f'its mask is no PNG in base64 ({error})') from error
    if len(ends) == 2:
        differences = np.diff(ends, axis=0)[0] + 1 - mask.shape[::-1]
        if (abs(differences) > SLACK).any():
            raise ValueError(
                f'a mask of {mask.shape[::-1]} pixels (w, h) between {ends.tolist()}'
            )
    left, top = map(round, ends[0].tolist()) if len(ends) else (0, 0)
    item.size = item.size or (picture.height, picture.width)
    try:
        return geometry.mask_shape(label, mask, left, top, item.size, **more)
    except ValueError:
        return 'mask without a pixel in its image'


def add_part(shape: Shape, other: Shape) -> None:
    """Add another part to an object; a box beside a part with an outline becomes an outline."""
    corners = geometry.box_corners(shape.box)
    others = geometry.box_corners(other.box)
    if shape.outline or other.outline:
        outlines = [shape.outline or [corners], other.outline or [others]]
        shape.outline = geometry.merge_outlines(outlines)
    shape.box = geometry.bounding_box(corners + others)
    shape.crowd |= other.crowd


FOLDERS = 'annotations?|labels?|jsons?|anns?|labelme'
FILES = FileKind(
    'LabelMe',
    'a JSON file',
    ('.json',),
    FOLDERS,
    is_one=is_labelme,
    named=read_image_name,
)
LABELME = Format(
    'labelme',
    'LabelMe',
    ('.json',),
    find_labelme,
    read_labelme,
    FILES,
    lists_classes=False,
)
