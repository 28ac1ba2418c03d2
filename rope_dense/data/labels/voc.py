"""Pascal VOC: an XML file for each image, whose pixels count from 1.

The devkit, http://host.robots.ox.ac.uk/pascal/VOC/voc2012, has the format. Roboflow, Labelbox,
CVAT, labelImg and roLabelImg add folders of splits, polygons and rotated boxes.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from .files import errors_at, finite_numbers, named_numbers, read_xml
from .geometry import polygon_shape, rotated_shape
from .inventory import Inventory
from .label_folder import Format, LabelFolder, Read, Split
from .objects import Labelled, Report, Shape
from .pairs import find_pairs, read_pairs
from .places import FileKind
from .splits import split_files

PLACES = ('bndbox', 'robndbox', 'polygon', 'points')  # nodes of an object
NO_PLACE = 'object without bndbox, polygon or robndbox'
TRUE = ('1', 'true', 'yes')


def find_voc(inventory: Inventory) -> LabelFolder | None:
    """Annotations/ and JPEGImages/ with lists in ImageSets/Main; or folders of XML and images."""
    pairs = find_pairs(inventory, FILES)
    if pairs is None:
        return None
    return LabelFolder(VOC, *split_files(pairs, inventory))


def read_voc(part: Split, classes: Sequence[str] | None, report: Report) -> Read:
    """Images with an XML file: of their name, else the one whose ``filename`` they are."""

    def read(path: Path, image: Path) -> Labelled | None:
        root = read_annotation(path, report)
        if root is None:
            return None
        item = Labelled(image, size=size_in(root))
        for number, node in enumerate(root.findall('object'), start=1):
            where = f'{path.name}, object {number}'
            if not len(node) or node.findtext('deleted', '').strip() == '1':
                report.note('empty or deleted <object>', where)
                continue
            with errors_at(f'{path}, object {number}'):
                shape = shape_of(node, where, report)
            if shape:
                item.shapes.append(shape)
            else:
                item.leave_out(NO_PLACE, where, node.findtext('name', ''))
        return item

    def count(path: Path) -> int | None:
        root = read_annotation(path, report)
        if root is None:
            return None
        return len(root.findall('object'))

    return classes or (), read_pairs(part, FILES, report, read, count)


def read_image_name(path: Path) -> str | None:
    """The ``folder`` and ``filename`` of the image that an annotation names."""
    root = read_xml(path)
    name = root.findtext('filename', '').strip()
    if name:
        return f'{root.findtext("folder", "").strip()}/{name}'
    return None


def read_annotation(path: Path, report: Report) -> Element | None:
    """The root of an annotation; None for other XML files, which are noted.

    ValueError if boxes or names are elsewhere than in <object>.
    """
    root = read_xml(path)
    if root.tag != 'annotation':
        kind = 'XML file that is no annotation of Pascal VOC (left out)'
        report.note(kind, path.name)
        return None
    if root.find('object') is not None:
        return root
    for node in root.iter():
        tag = ''
        if isinstance(node.tag, str):
            tag = node.tag.lower()
        has_content = len(node) or (node.text or '').strip()
        if (tag in PLACES and has_content) or ('object' in tag and len(node)):
            raise ValueError(
                f'{path}: <{node.tag}> is not in an <object> of <annotation>, where Pascal VOC has '
                'each object: export the labels as Pascal VOC'
            )
    return root


def size_in(root: Element) -> tuple[int, int] | None:
    """(height, width) of the image; None where a tool wrote 0, 'None' or nothing."""
    try:
        height = int(float(root.findtext('size/height') or 0))
        width = int(float(root.findtext('size/width') or 0))
    except ValueError:
        return None
    if height > 0 and width > 0:
        return height, width
    return None


def shape_of(node: Element, where: str, report: Report) -> Shape | None:
    """The object of a node: a rotated box, polygons, or a box; None if it has none of them."""
    label = node.findtext('name', '').strip()
    if not label:
        raise ValueError('its <name> is empty or missing')
    difficult = node.findtext('difficult', '') or node.findtext('Difficult', '')
    is_difficult = difficult.strip().lower() in TRUE
    more: dict[str, Any] = dict(where=where, crowd=is_difficult)
    rotated = node.find('robndbox')
    if rotated is not None and rotated.find('angle') is not None:
        # Of roLabelImg: centre and sides in pixels from 0, and clockwise radians.
        names = ('cx', 'cy', 'w', 'h', 'angle')
        values = named_numbers(rotated.findtext, *names, form='<{}>')
        x, y, width, height, angle = values
        if abs(angle) > 2 * np.pi:
            raise ValueError(
                f'<angle> is {angle:g}, more than a circle: write it in radians'
            )
        place = (x - width / 2, y - height / 2, width, height)
        return rotated_shape(label, place, np.rad2deg(angle), **more)
    polygons = [*map(points_in, node.findall('polygon'))]
    box = node.find('bndbox')
    upright = None
    if box is not None and box.find('xmin') is None:
        polygons.append(points_in(box))  # <bndbox> with corners x0, y0, ...
        box = None if len(polygons[-1]) > 4 else box
    polygons = [points for points in polygons if len(points) > 4]
    if box is not None:
        # From the pixel (xmin, ymin) to (xmax, ymax), which count from 1.
        corners = ('xmin', 'ymin', 'xmax', 'ymax')
        values = named_numbers(box.findtext, *corners, form='<{}>')
        left, right = sorted(values[::2])
        top, bottom = sorted(values[1::2])
        if [left, top, right, bottom] != values:
            report.note('box with its corners in another order (put in order)', where)
        upright = left - 1, top - 1, right - left + 1, bottom - top + 1
    if polygons:
        shape = polygon_shape(label, np.concatenate(polygons), **more)
        shape.outline, shape.box = polygons, upright or shape.box
        return shape
    if upright:
        return Shape(label, upright, **more)
    return None


def points_in(polygon: Element) -> list[float]:
    """The corners [x, y, ...] of a polygon, from <x1>, <y1>, ..., which count from 1.

    Or from the <pt><x>, <y></pt> of LabelMe's XML files, which count from 0.
    """
    values = []
    points = polygon.findall('pt')
    for point in points:
        values += [point.findtext('x'), point.findtext('y')]
    if points:
        return finite_numbers(values, 'a corner')
    texts = {node.tag.lower(): node.text for node in polygon}
    order = sorted(int(name[1:]) for name in texts if re.fullmatch(r'x\d+', name))
    for number in order:
        values += [texts.get(f'x{number}'), texts.get(f'y{number}')]
    return [value - 1 for value in finite_numbers(values, 'a corner')]


def is_voc(path: Path) -> bool:
    """Return whether an XML file is an annotation of Pascal VOC; ValueError if it is broken."""
    return read_xml(path).tag == 'annotation'


FOLDERS = 'annotations?|xmls?|labels?'
FILES = FileKind(
    'VOC',
    'an XML file',
    ('.xml',),
    FOLDERS,
    is_one=is_voc,
    named=read_image_name,
    lists='main',
)
VOC = Format(
    'voc', 'Pascal VOC', ('.xml',), find_voc, read_voc, FILES, lists_classes=False
)
