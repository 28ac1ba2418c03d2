"""Labels in the formats of ``label_readers`` as COCO json, with a report of what is odd in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from PIL import Image

from .dota_labels import read_dota
from .label_readers import (
    NO_IMAGE,
    Box,
    Labelled,
    Odd,
    Shape,
    bounding_box,
    orientation_of,
    read_coco,
    read_cvat,
    read_labelme,
    read_voc,
    read_yolo,
    shown_size,
)
from .rotated import rectangle_corners, smallest_rectangle

if find_spec('pycocotools'):  # mmdet brings it, mmseg does not
    from pycocotools import mask as coco_mask

READERS = {
    'coco': read_coco,
    'yolo': read_yolo,
    'voc': read_voc,
    'labelme': read_labelme,
    'cvat': read_cvat,
    'dota': read_dota,
}
LEAST_SIDE = 1.0  # pixels: mmdet leaves out what is smaller


def convert(
    kind: str,
    source: Path,
    images: Path | None = None,
    classes: Sequence[str] | None = None,
    names: Collection[str] | None = None,
    *,
    oriented: bool = False,
    ignore_difficult: bool = False,
) -> tuple[dict, Odd]:
    """The annotations in a file or folder as a COCO data set, and what is odd in them.

    Boxes are clipped to the image; objects without area, of unknown classes, and labels of images
    that are not there are left out. `file_name` is relative to the folder of the images.

    Args:
        kind: a key of READERS.
        source: folder of label files (yolo, voc, labelme) or the file (coco, cvat).
        images: folder of the images; by default beside the labels, as the format has it.
        classes: names to use, in the order of their numbers; by default the source's.
        names: paths of the images to take, in their folder and without suffix; None for all.
        oriented: `segmentation` is the smallest rectangle around an object, which nothing clips.
        ignore_difficult: objects that DOTA calls difficult are `iscrowd`, which is not evaluated.

    Raises:
        ValueError: the source cannot be read as that format, or has no image.
    """
    odd = Odd()
    folder = images or default_images(kind, source)
    if not folder.is_dir():
        raise ValueError(f'{folder}: no such folder of images; give it with --images')
    labels, labelled = read(kind, source, folder, classes, odd)
    if names is not None:
        labelled = [item for item in labelled if path_of(item, folder) in names]
    entries: list[dict] = []
    annotations: list[dict] = []
    form = annotate_oriented if oriented else annotate
    for number, item in enumerate((turned(item, odd) for item in labelled), start=1):
        entries.append(image_entry(item, number, folder, odd))
        for shape in item.shapes:
            if annotation := form(shape, entries[-1], labels, odd):
                is_crowd = shape.crowd or (ignore_difficult and shape.difficult)
                ids = dict(id=len(annotations) + 1, image_id=number, iscrowd=int(is_crowd))
                annotations.append(dict(ids, **annotation))
    categories = [dict(id=number, name=name) for number, name in enumerate(labels, start=1)]
    return dict(images=entries, annotations=annotations, categories=categories), odd


def read(
    kind: str, source: Path, folder: Path, classes: Sequence[str] | None, odd: Odd
) -> tuple[Sequence[str], list[Labelled]]:
    """The names of the classes, and the images with their objects; see ``convert``."""
    try:
        names, items = READERS[kind](source, folder, classes, odd)
        labelled = list(items)
    except (ValueError, KeyError, TypeError, IndexError, ElementTree.ParseError) as error:
        raise ValueError(
            f'{source} cannot be read as {kind} ({type(error).__name__}: {error})'
        ) from error
    if not labelled and (lost := odd.found.get(NO_IMAGE)):
        raise ValueError(
            f'{source}: no image in {folder} for any of its {len(lost)} labels, such as {lost[0]}; '
            'give the folder of the images with --images'
        )
    if not labelled:
        raise ValueError(f'{source}: no labels of an image in {folder}, as {kind}')
    return tuple(names) or tuple(sorted({s.label for x in labelled for s in x.shapes})), labelled


def path_of(item: Labelled, folder: Path) -> str:
    """The path of an image in its folder, without suffix."""
    return item.file.relative_to(folder).with_suffix('').as_posix()


def turned(item: Labelled, odd: Odd) -> Labelled:
    """Labels of the pixels of a file, for the picture that its EXIF orientation makes of them.

    Tools and pipelines show and read that picture. Labels are of the file's own pixels if they say
    a size that only these have.
    """
    size, orientation = item.size, orientation_of(item.file)
    if orientation == 1:
        return item
    height, width = shown_size(item.file)
    if size != (width, height) or orientation < 5 or height == width:
        return item
    odd.add('labels of a picture before its EXIF rotation (turned)', item.file.name)
    move = TURNS[orientation]
    shapes = []
    for shape in item.shapes:
        left, top, box_width, box_height = shape.box
        corners = [left, top, left + box_width, top + box_height]
        polygons = shape.polygons and [moved(x, move, size) for x in shape.polygons]
        box = bounding_box(moved(corners, move, size))
        shapes.append(replace(shape, box=box, polygons=polygons))
    return Labelled(item.file, shapes, (height, width))


def moved(points: Sequence[float], move: Turn, size: tuple[int, int]) -> list[float]:
    """Points [x, y, x, y, ...] of an image of `size` (height, width), each moved."""
    height, width = size
    pairs = np.reshape(points, (-1, 2)).tolist()
    return [value for x, y in pairs for value in move(x, y, width, height)]


Turn = Callable[[float, float, float, float], tuple[float, float]]
# (x, y) in an image of w x h pixels to the picture of an EXIF orientation whose sides are swapped.
TURNS: dict[int, Turn] = {
    5: lambda x, y, w, h: (y, x),
    6: lambda x, y, w, h: (h - y, x),
    7: lambda x, y, w, h: (h - y, w - x),
    8: lambda x, y, w, h: (y, w - x),
}


def image_entry(item: Labelled, number: int, folder: Path, odd: Odd) -> dict:
    """An image of a COCO data set."""
    height, width = shown_size(item.file)
    name = item.file.relative_to(folder).as_posix()
    if item.size not in (None, (height, width)):
        odd.add('image of another size than its labels say', item.file.name)
    if is_dark(item.file):
        odd.add('16-bit image with values below 4096 (scaled by own.max_value)', name)
    if not item.shapes:
        odd.add('image without objects', name)
    return dict(id=number, file_name=name, height=height, width=width)


def is_dark(file: Path) -> bool:
    """Return True for 16-bit images of at most 12 used bits: readers take the upper 8."""
    with Image.open(file) as image:
        if not image.mode.startswith('I'):
            return False
        brightest = int(np.asarray(image).max())
    return brightest < 4096


def annotate(shape: Shape, image: dict, names: Sequence[str], odd: Odd) -> dict | None:
    """An object of a COCO data set, within its image; None if it is left out."""
    name, size = image['file_name'], (image['height'], image['width'])
    if shape.label not in names:
        odd.add(f'unknown class {shape.label!r} (left out)', name)
        return None
    if (box := clipped(shape.box, *size)) != shape.box:
        odd.add('box outside of its image (clipped)', name)
    if min(box[2:]) < LEAST_SIDE:
        odd.add('box without area, less than a pixel wide or high (left out)', name)
        return None
    category = names.index(shape.label) + 1
    annotation: dict[str, Any] = dict(category_id=category, bbox=list(box), area=box[2] * box[3])
    if shape.polygons:
        polygons = [clipped_polygon(points, *size) for points in shape.polygons]
        annotation |= dict(segmentation=polygons, area=covered_area(polygons, *size))
    return annotation


def annotate_oriented(shape: Shape, image: dict, names: Sequence[str], odd: Odd) -> dict | None:
    """An object as its smallest rectangle, which may reach beyond the image; None if left out.

    A rectangle of which the image has less than the centre is left out.
    """
    name = shape.where or image['file_name']
    if shape.label not in names:
        odd.add(f'unknown class {shape.label!r} (left out)', name)
        return None
    left, top, width, height = shape.box
    right, bottom = left + width, top + height
    outlines = shape.polygons or [[left, top, right, top, right, bottom, left, bottom]]
    if shape.polygons and any(map(crosses_itself, outlines)):
        odd.add('corners in an order that crosses (their smallest rectangle taken)', name)
    rectangle = smallest_rectangle([value for outline in outlines for value in outline])
    x, y, *sides = rectangle[:4].tolist()
    if min(sides) < LEAST_SIDE:
        odd.add('rectangle without area, less than a pixel wide or high (left out)', name)
        return None
    if not (0 <= x < image['width'] and 0 <= y < image['height']):
        odd.add('rectangle with its centre outside of its image (left out)', name)
        return None
    corners = rectangle_corners(rectangle).tolist()
    category, box = names.index(shape.label) + 1, list(bounding_box(corners))
    area = sides[0] * sides[1]
    return dict(category_id=category, bbox=box, area=area, segmentation=[corners])


def default_images(kind: str, source: Path) -> Path:
    """Return the folder in which a format has its images by default."""
    if kind == 'yolo' and 'labels' in source.parts:
        place = len(source.parts) - 1 - source.parts[::-1].index('labels')
        return Path(*source.parts[:place], 'images', *source.parts[place + 1 :])
    if kind == 'dota':
        return source.parent / 'images'
    if kind == 'voc' and (source.parent / 'JPEGImages').is_dir():
        return source.parent / 'JPEGImages'
    if source.is_dir():
        return source
    return source.parent / 'images' if (source.parent / 'images').is_dir() else source.parent


def clipped(box: Box, height: int, width: int) -> Box:
    """The part of a box within an image; one that is less than 1/100 pixel outside stays."""
    left, top, box_width, box_height = box
    right, bottom = left + box_width, top + box_height
    if min(left, top) >= -0.01 and right <= width + 0.01 and bottom <= height + 0.01:
        return box
    left, right = (float(np.clip(x, 0, width)) for x in (left, right))
    top, bottom = (float(np.clip(y, 0, height)) for y in (top, bottom))
    return left, top, right - left, bottom - top


def clipped_polygon(points: Sequence[float], height: int, width: int) -> list[float]:
    """A polygon whose corners are moved into the image."""
    corners = np.reshape(points, (-1, 2)).clip(0, (width, height))
    return corners.reshape(-1).tolist()


def covered_area(polygons: Sequence[Sequence[float]], height: int, width: int) -> float:
    """The area that polygons cover, in pixels: exact for one that does not cross itself."""
    if len(polygons) == 1 and not crosses_itself(polygons[0]):
        return polygon_area(polygons[0])
    outlines = coco_mask.frPyObjects([list(points) for points in polygons], height, width)
    return float(coco_mask.area(coco_mask.merge(outlines)))


def polygon_area(points: Sequence[float]) -> float:
    """Area of a polygon [x, y, x, y, ...], by the shoelace formula."""
    x, y = np.reshape(points, (-1, 2)).T
    return float(abs(x @ np.roll(y, 1) - y @ np.roll(x, 1)) / 2)


def crosses_itself(points: Sequence[float]) -> bool:
    """Return True if two edges of a polygon [x, y, x, y, ...] cross within both."""
    start = np.reshape(points, (-1, 2))
    edge = np.roll(start, -1, axis=0) - start

    def side(origin: np.ndarray, direction: np.ndarray, point: np.ndarray) -> np.ndarray:
        x, y = np.moveaxis(point - origin, -1, 0)
        return np.sign(direction[..., 0] * y - direction[..., 1] * x)

    ends = start + edge
    apart = side(start[:, None], edge[:, None], start) * side(start[:, None], edge[:, None], ends)
    return bool(((apart < 0) & (apart.T < 0)).any())
