"""Annotations of other formats as COCO json, with a report of what is odd in them.

Boxes are (left, top, width, height) in pixels, polygons lists of (x, y) in pixels. Sources are read
and never changed. Formats: YOLO (https://docs.ultralytics.com/datasets/detect), Pascal VOC,
LabelMe, CVAT for images 1.1 (https://docs.cvat.ai/docs/manual/advanced/formats), COCO itself.
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

Box = tuple[float, float, float, float]
FORMATS = ('coco', 'yolo', 'voc', 'labelme', 'cvat')
EXAMPLES = 3  # of a kind are named
NO_IMAGE = 'labels without an image (left out)'
LEAST_SIDE = 1.0  # pixels: mmdet leaves out what is smaller


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
    """An object: name of its class, box, and polygons [[x, y, x, y, ...], ...] or None."""

    label: str
    box: Box
    polygons: list[list[float]] | None = None
    crowd: bool = False


@dataclass
class Labelled:
    """An image file with its objects; `size` is (height, width) by the labels, if they say it."""

    file: Path
    shapes: list[Shape]
    size: tuple[int, int] | None = None


def convert(
    kind: str, source: Path, images: Path | None, classes: Sequence[str] | None
) -> tuple[dict, Odd]:
    """The annotations in a file or folder as a COCO data set, and what is odd in them.

    Boxes are clipped to the image; objects without area, of unknown classes, and labels of images
    that are not there are left out. `file_name` is relative to the folder of the images.

    Args:
        kind: one of FORMATS.
        source: folder of label files (yolo, voc, labelme) or the file (coco, cvat).
        images: folder of the images; by default beside the labels, as the format has it.
        classes: names to use, in the order of their numbers; by default the source's.

    Raises:
        ValueError: the source cannot be read as that format, or has no image.
    """
    odd = Odd()
    folder = images or default_images(kind, source)
    if not folder.is_dir():
        raise ValueError(f'{folder}: no such folder of images; give it with --images')
    names, labelled = read(kind, source, folder, classes, odd)
    entries: list[dict] = []
    annotations: list[dict] = []
    for number, item in enumerate(labelled, start=1):
        entries.append(image_entry(item, number, folder, odd))
        for shape in item.shapes:
            if annotation := annotate(shape, entries[-1], names, odd):
                annotations.append(dict(id=len(annotations) + 1, **annotation))
    categories = [dict(id=number, name=name) for number, name in enumerate(names, start=1)]
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


def image_entry(item: Labelled, number: int, folder: Path, odd: Odd) -> dict:
    """An image of a COCO data set."""
    with Image.open(item.file) as image:
        width, height = image.size
    name = item.file.relative_to(folder).as_posix()
    if item.size not in (None, (height, width)):
        odd.add('image of another size than its labels say', item.file.name)
    if not item.shapes:
        odd.add('image without objects', name)
    return dict(id=number, file_name=name, height=height, width=width)


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
    annotation: dict[str, Any] = dict(
        image_id=image['id'],
        category_id=names.index(shape.label) + 1,
        bbox=list(box),
        area=box[2] * box[3],
        iscrowd=int(shape.crowd),
    )
    if shape.polygons:
        polygons = [clipped_polygon(points, *size) for points in shape.polygons]
        annotation |= dict(segmentation=polygons, area=sum(map(polygon_area, polygons)))
    return annotation


def default_images(kind: str, source: Path) -> Path:
    """Return the folder in which a format has its images by default."""
    if kind == 'yolo' and 'labels' in source.parts:
        place = len(source.parts) - 1 - source.parts[::-1].index('labels')
        return Path(*source.parts[:place], 'images', *source.parts[place + 1 :])
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


def polygon_area(points: Sequence[float]) -> float:
    """Area of a polygon [x, y, x, y, ...], by the shoelace formula."""
    x, y = np.reshape(points, (-1, 2)).T
    return float(abs(x @ np.roll(y, 1) - y @ np.roll(x, 1)) / 2)


def polygon_shape(label: str, points: Sequence[float]) -> Shape:
    """An object from the corners [x, y, x, y, ...] of its outline."""
    corners = np.reshape(np.asarray(points, float), (-1, 2))
    (left, top), (right, bottom) = corners.min(0).tolist(), corners.max(0).tolist()
    box = (left, top, right - left, bottom - top)
    return Shape(label, box, [corners.reshape(-1).tolist()] if len(corners) > 2 else None)


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

    A line has the class number, then centre, width and height, or the corners of a polygon. An
    image without a file has no objects.
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
            lines = texts[stem].read_text().splitlines() if stem in texts else []
            with Image.open(file) as image:
                width, height = image.size
            yield Labelled(file, [yolo_shape(line, names, width, height) for line in lines if line])

    return names, items()


def yolo_shape(line: str, names: Sequence[str], width: int, height: int) -> Shape:
    """The object of one line."""
    number, *values = (float(word) for word in line.split())
    known = 0 <= number < len(names)
    label = names[int(number)] if known else f'number {int(number)}'
    if len(values) not in (4, 5):  # 5: a score behind the box
        scale = (width, height) * (len(values) // 2)
        return polygon_shape(
            label, [share * side for share, side in zip(values, scale, strict=True)]
        )
    x, y, box_width, box_height = values[:4]
    left, top = (x - box_width / 2) * width, (y - box_height / 2) * height
    return Shape(label, (left, top, box_width * width, box_height * height))


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
    """A json file for each image, with polygons, rectangles and circles."""

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
            for item in content['shapes']:
                points = np.asarray(item['points'], float)
                form = item.get('shape_type') or 'polygon'
                if form == 'circle':
                    points = circle(points)
                if form == 'rectangle':
                    shape = polygon_shape(item['label'], points.reshape(-1).tolist())
                    shapes.append(Shape(shape.label, shape.box))
                elif form in ('polygon', 'circle') and len(points) > 2:
                    shapes.append(polygon_shape(item['label'], points.reshape(-1).tolist()))
                else:
                    odd.add(f'shape of type {form}, {len(points)} points (left out)', path.name)
            size = content.get('imageHeight'), content.get('imageWidth')
            yield Labelled(file, shapes, size if all(size) else None)

    return classes or (), items()


def circle(points: np.ndarray) -> np.ndarray:
    """36 corners on the circle around the first point through the second."""
    centre, other = points
    angles = np.arange(36) * np.pi / 18
    radius = np.linalg.norm(other - centre)
    return centre + radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def read_cvat(source: Path, folder: Path, classes: Sequence[str] | None, odd: Odd) -> Read:
    """One XML file ("CVAT for images"), with boxes and polygons."""
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
                    shapes.append(Shape(label, (left, top, right - left, bottom - top)))
                elif item.tag == 'polygon':
                    numbers = re.split('[,;]', item.get('points', ''))
                    shapes.append(polygon_shape(label, [float(number) for number in numbers]))
                else:
                    odd.add(f'shape of type {item.tag} (left out)', name)
            yield Labelled(file, shapes, (int(image.get('height', 0)), int(image.get('width', 0))))

    return classes or listed, items()


CVAT_CORNERS = ('xtl', 'ytl', 'xbr', 'ybr')


def read_coco(source: Path, folder: Path, classes: Sequence[str] | None, odd: Odd) -> Read:
    """A COCO file, of which run lengths of crowds become boxes; areas are computed anew."""
    content = json.loads(source.read_text(encoding='utf-8'))
    names = {category['id']: category['name'] for category in content['categories']}
    by_image: dict[int, list[Shape]] = {}
    lacking = [
        name for name in ('area', 'iscrowd') if any(name not in a for a in content['annotations'])
    ]
    if lacking:
        odd.add(f'file without {" and ".join(lacking)} (computed)', source.name)
    for item in content['annotations']:
        polygons = item.get('segmentation')
        left, top, width, height = map(float, item['bbox'])
        shape = Shape(
            names.get(item['category_id'], f'number {item["category_id"]}'),
            (left, top, width, height),
            polygons if isinstance(polygons, list) and polygons else None,
            bool(item.get('iscrowd', 0)),
        )
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


READERS = {
    'coco': read_coco,
    'yolo': read_yolo,
    'voc': read_voc,
    'labelme': read_labelme,
    'cvat': read_cvat,
}
