"""Readers of labels in the formats of annotation tools: images with their objects.

Boxes are (left, top, width, height) in pixels, polygons lists of (x, y) in pixels. Sources are read
and never changed. Formats: YOLO (https://docs.ultralytics.com/datasets/detect), Pascal VOC,
LabelMe, CVAT for images 1.1 (https://docs.cvat.ai/docs/manual/advanced/formats), COCO.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import mmengine
import numpy as np
from PIL import Image

from .own_data import IMAGE_SUFFIXES, read_classes
from .rotated import check_rectangle, rectangle_corners

Box = tuple[float, float, float, float]
EXAMPLES = 3  # of a kind are named
NO_IMAGE = 'labels without an image (left out)'
ORIENTATION = 274  # the tag of EXIF


@dataclass
class Odd:
    """Counts and examples of what is odd, by kind."""

    found: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: str, where: object) -> None:
        """Count one of a kind."""
        self.found.setdefault(kind, []).append(str(where))

    def __str__(self) -> str:
        lines = []
        for kind, places in self.found.items():
            names = list(dict.fromkeys(places))
            more = ' ...' if len(names) > EXAMPLES else ''
            lines.append(f'{len(places)} x {kind}: {", ".join(names[:EXAMPLES])}{more}')
        return '\n'.join(lines) or 'nothing odd'


@dataclass
class Shape:
    """An object: name of its class, box, and polygons [[x, y, x, y, ...], ...] or None.

    `where` is the place of its label, such as 'a.txt, line 3', if the format has one.
    """

    label: str
    box: Box
    polygons: list[list[float]] | None = None
    crowd: bool = False
    difficult: bool = False
    where: str = ''


@dataclass
class Labelled:
    """An image file with its objects; `size` is (height, width) by the labels, if they say it."""

    file: Path
    shapes: list[Shape]
    size: tuple[int, int] | None = None


def polygon_shape(label: str, points: Sequence[float] | np.ndarray, **more: Any) -> Shape:
    """An object from the corners [x, y, x, y, ...] of its outline."""
    outline = np.asarray(points, float).tolist()
    return Shape(label, bounding_box(outline), [outline] if len(outline) > 4 else None, **more)


def bounding_box(points: Sequence[float]) -> Box:
    """The smallest box around points [x, y, x, y, ...]."""
    corners = np.reshape(points, (-1, 2))
    (left, top), (right, bottom) = corners.min(0).tolist(), corners.max(0).tolist()
    return left, top, right - left, bottom - top


def orientation_of(file: Path) -> int:
    """The EXIF orientation of an image file, 1 to 8; 1 if it says none."""
    with Image.open(file) as image:
        orientation = image.getexif().get(ORIENTATION, 1)
    return orientation if orientation in range(1, 9) else 1


def shown_size(file: Path) -> tuple[int, int]:
    """(height, width) of an image as it is shown and read: turned as its EXIF orientation says."""
    with Image.open(file) as image:
        width, height = image.size
    return (width, height) if orientation_of(file) > 4 else (height, width)


def image_files(folder: Path) -> dict[str, Path]:
    """The image files of a folder by their path in it, without the suffix."""
    return {
        path.relative_to(folder).with_suffix('').as_posix(): path
        for path in sorted(folder.rglob('*'))
        if path.suffix.lower() in IMAGE_SUFFIXES
    }


Read = tuple[Sequence[str], Iterator[Labelled]]


def read_yolo(source: Path, folder: Path, classes: Sequence[str] | None, odd: Odd) -> Read:
    """A text file for each image, a line for each object, in shares of the image.

    A line has the class number, then centre, width and height, or the corners of a polygon (of a
    rotated box, too). An image without a file has no objects.
    """
    names = tuple(classes or yolo_names(source))

    def items() -> Iterator[Labelled]:
        files = image_files(folder)
        texts = {
            path.relative_to(source).with_suffix('').as_posix(): path
            for path in sorted(source.rglob('*.txt'))
            if path.name != 'classes.txt'
        }
        for stem in texts.keys() - files.keys():
            odd.add(NO_IMAGE, texts[stem].name)
        for stem, file in files.items():
            height, width = shown_size(file)
            lines = numbered_lines(texts[stem]) if stem in texts else ()
            shapes = [yolo_shape(line, names, (width, height), where, odd) for where, line in lines]
            yield Labelled(file, shapes)

    return names, items()


def numbered_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Each line of a file that is not blank, and before it its place: 'a.txt, line 3'."""
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if line.strip():
            yield f'{path.name}, line {number}', line


def numbers_of(words: Sequence[str], where: str) -> list[float]:
    """Words as finite numbers; ValueError, which names the place, if one is none."""
    try:
        numbers = [float(word) for word in words]
    except ValueError as error:
        raise ValueError(f'{where}: {error}') from error
    if not np.isfinite(numbers).all():
        raise ValueError(f'{where}: a number is not finite')
    return numbers


def yolo_shape(
    line: str, names: Sequence[str], size: tuple[int, int], where: str, odd: Odd
) -> Shape:
    """The object of one line, of an image of `size` (width, height)."""
    number, *values = numbers_of(line.split(), where)
    known = 0 <= number < len(names)
    label = names[int(number)] if known else f'number {int(number)}'
    if len(values) == 5:
        odd.add('box with a fifth number (taken as its score)', where)
    elif len(values) != 4:
        if len(values) < 4 or len(values) % 2:
            raise ValueError(f'{where}: {len(values)} numbers after the class')
        scale = size * (len(values) // 2)
        outline = [share * side for share, side in zip(values, scale, strict=True)]
        return polygon_shape(label, outline, where=where)
    (width, height), (x, y, box_width, box_height) = size, values[:4]
    left, top = (x - box_width / 2) * width, (y - box_height / 2) * height
    return Shape(label, (left, top, box_width * width, box_height * height), where=where)


def yolo_names(source: Path) -> Sequence[str]:
    """Names of classes from classes.txt or from `names` of a yaml file, in or above the folder."""
    for folder in (source, *source.resolve().parents[:3]):
        if (file := folder / 'classes.txt').is_file():
            return read_classes(file)[0]
        for file in sorted(folder.glob('*.yaml')):
            if names := (mmengine.load(file) or {}).get('names'):
                return list(names.values()) if isinstance(names, dict) else names
    raise ValueError('no classes.txt and no yaml with names, in it or above; give --classes')


def read_voc(source: Path, folder: Path, classes: Sequence[str] | None, odd: Odd) -> Read:
    """An XML file for each image; its pixels are counted from 1."""

    def items() -> Iterator[Labelled]:
        files = image_files(folder)
        for path in sorted(source.rglob('*.xml')):
            root = ElementTree.parse(path).getroot()
            stem = Path(root.findtext('filename') or path.name).stem
            file = files.get(stem) or files.get(path.relative_to(source).with_suffix('').as_posix())
            if file is None:
                odd.add(NO_IMAGE, path.name)
                continue
            shapes = []
            for item in root.iter('object'):
                corners = [float(item.findtext(f'bndbox/{name}', '')) for name in VOC_CORNERS]
                left, top, right, bottom = corners
                box = (left - 1, top - 1, right - left + 1, bottom - top + 1)
                shapes.append(Shape(item.findtext('name', ''), box))
            size = [int(float(root.findtext(f'size/{name}') or 0)) for name in ('height', 'width')]
            yield Labelled(file, shapes, (size[0], size[1]) if all(size) else None)

    return classes or (), items()


VOC_CORNERS = ('xmin', 'ymin', 'xmax', 'ymax')


def read_labelme(source: Path, folder: Path, classes: Sequence[str] | None, odd: Odd) -> Read:
    """A json file for each image, with polygons, rectangles (turned ones, too) and circles.

    Shapes of one label and ``group_id`` are one object.
    """

    def items() -> Iterator[Labelled]:
        files = image_files(folder)
        for path in sorted(source.rglob('*.json')):
            content = json.loads(path.read_text(encoding='utf-8'))
            stem = Path(re.split(r'[\\/]', content.get('imagePath') or path.name)[-1]).stem
            file = files.get(path.relative_to(source).with_suffix('').as_posix()) or files.get(stem)
            if file is None:
                odd.add(NO_IMAGE, path.name)
                continue
            shapes = []
            groups: dict[tuple[str, int], Shape] = {}
            for item in content['shapes']:
                points = np.asarray(item['points'], float)
                form = item.get('shape_type') or 'polygon'
                if form == 'circle':
                    points = circle(points)
                if form == 'rectangle' and len(points) > 1:
                    shape = Shape(item['label'], bounding_box(points.reshape(-1).tolist()))
                elif form in ('polygon', 'circle', 'rotation') and len(points) > 2:
                    outline = points.reshape(-1).tolist()
                    shape = polygon_shape(item['label'], outline, where=path.name)
                else:
                    odd.add(f'shape of type {form}, {len(points)} points (left out)', path.name)
                    continue
                group = item['label'], item.get('group_id')
                if group[1] is None:
                    shapes.append(shape)
                elif group in groups:
                    join(groups[group], shape)
                else:
                    groups[group] = shape
                    shapes.append(shape)
            size = content.get('imageHeight'), content.get('imageWidth')
            yield Labelled(file, shapes, size if all(size) else None)

    return classes or (), items()


def join(shape: Shape, other: Shape) -> None:
    """Add another part of an object to it; without polygons if a part has none."""
    corners = []
    for left, top, width, height in (shape.box, other.box):
        corners += [left, top, left + width, top + height]
    shape.box = bounding_box(corners)
    first, second = shape.polygons, other.polygons
    shape.polygons = [*first, *second] if first and second else None


def circle(points: np.ndarray) -> np.ndarray:
    """36 corners on the circle around the first point through the second."""
    centre, other = points
    angles = np.arange(36) * np.pi / 18
    radius = np.linalg.norm(other - centre)
    return centre + radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def read_cvat(source: Path, folder: Path, classes: Sequence[str] | None, odd: Odd) -> Read:
    """One XML file ("CVAT for images"), with boxes (turned ones, too) and polygons."""
    root = ElementTree.parse(source).getroot()
    listed = [item.findtext('name', '') for item in root.iterfind('.//labels/label')]

    def items() -> Iterator[Labelled]:
        files = image_files(folder)
        for image in root.iter('image'):
            name = Path(image.get('name', ''))
            file = files.get(name.with_suffix('').as_posix()) or files.get(name.stem)
            if file is None:
                odd.add(NO_IMAGE, name)
                continue
            shapes = []
            for item in image:
                label = item.get('label', '')
                if item.tag == 'box':
                    left, top, right, bottom = (float(item.get(k, '')) for k in CVAT_CORNERS)
                    width, height = right - left, bottom - top
                    if turn := float(item.get('rotation', 0)):  # degrees, about the centre
                        centre = (left + right) / 2, (top + bottom) / 2
                        rectangle = np.array([*centre, width, height, np.deg2rad(turn)])
                        shapes.append(polygon_shape(label, rectangle_corners(rectangle)))
                    else:
                        shapes.append(Shape(label, (left, top, width, height)))
                elif item.tag == 'polygon':
                    numbers = re.split('[,;]', item.get('points', ''))
                    shapes.append(polygon_shape(label, [float(number) for number in numbers]))
                else:
                    odd.add(f'shape of type {item.tag} (left out)', name)
            yield Labelled(file, shapes, (int(image.get('height', 0)), int(image.get('width', 0))))

    return classes or listed, items()


CVAT_CORNERS = ('xtl', 'ytl', 'xbr', 'ybr')


def read_coco(source: Path, folder: Path, classes: Sequence[str] | None, odd: Odd) -> Read:
    """A COCO file, of which run lengths of crowds become boxes; areas are computed anew.

    `rbox`, or `bbox` of five numbers, is (x, y, w, h, angle); see ``rotated_shape``.
    """
    content = json.loads(source.read_text(encoding='utf-8'))
    names = {category['id']: category['name'] for category in content['categories']}
    by_image: dict[int, list[Shape]] = {}
    lacking = [
        name for name in ('area', 'iscrowd') if any(name not in a for a in content['annotations'])
    ]
    if lacking:
        odd.add(f'file without {" and ".join(lacking)} (computed)', source.name)
    convention = (content.get('info') or {}).get('angle_version')
    for index, item in enumerate(content['annotations']):
        where = f'{source.name}, annotation {item.get("id", f"number {index}")}'
        label = names.get(item['category_id'], f'number {item["category_id"]}')
        rbox = item.get('rbox', item['bbox'])
        if len(rbox) == 5:
            shape = rotated_shape(label, rbox, convention, where)
        else:
            polygons = item.get('segmentation')
            left, top, width, height = map(float, item['bbox'])
            outlines = polygons if isinstance(polygons, list) and polygons else None
            shape = Shape(label, (left, top, width, height), outlines, where=where)
        shape.crowd = bool(item.get('iscrowd', 0))
        by_image.setdefault(item['image_id'], []).append(shape)

    def items() -> Iterator[Labelled]:
        for image in content['images']:
            file = folder / image['file_name']
            if file.is_file():
                size = image.get('height'), image.get('width')
                shapes = by_image.get(image['id'], [])
                yield Labelled(file, shapes, size if all(size) else None)
            else:
                odd.add(NO_IMAGE, image['file_name'])

    return classes or tuple(names.values()), items()


def rotated_shape(label: str, box: Sequence[float], convention: str | None, where: str) -> Shape:
    """An object from (x, y, w, h, angle) in the convention that `angle_version` of `info` names.

    Raises:
        ValueError: it names none, or the box is not as the convention has it.
    """
    if convention is None:
        raise ValueError(f'{where}: a box of five numbers, and no info.angle_version in the file')
    try:
        check_rectangle(box, convention)
    except ValueError as error:
        raise ValueError(f'{where}: {error}') from error
    return polygon_shape(label, rectangle_corners(np.asarray(box)), where=where)
