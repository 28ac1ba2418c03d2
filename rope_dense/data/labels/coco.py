"""COCO: one JSON file of a split or of all images (https://cocodataset.org/#format-data).

Its boxes, rotated boxes, polygons and run lengths, also in forms that COCO has not.
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from ..rotated import check_rectangle, rectangle_corners
from . import geometry
from .coco_files import (
    CocoFile,
    Entry,
    find_image,
    id_of,
    image_entries,
    load_coco,
    plain_name,
    stem_of,
)
from .files import (
    class_name,
    class_names,
    errors_at,
    finite_numbers,
    is_set,
)
from .inventory import are_elsewhere
from .label_folder import Read, Split
from .objects import ELSEWHERE, Box, Labelled, Outline, Report, Shape

# Of labelme2coco and X-AnyLabeling.
PLACEHOLDERS = ('_background_', '__background__', '__ignore__')
LOOKED_AT = 10_000  # annotations, which tell what their numbers are
LEAST_BOXES = 4  # different ones, of which corners can be told from sizes
BEYOND = 1.1  # times the side of an image: no box reaches there by rounding
BEYOND_SHARE = 0.25  # of boxes of corners, read as sizes, reach there
NO_PLACE = 'object without a box, polygon or mask'
POINTS = 'object of key points without a box, which no box is made of'
SCORED = 'object with a score (of predictions? all are taken as labels)'
UNLIKE = 'box unlike its polygon or mask (boxes are trained on the first, masks on the second)'
ARE_CORNERS = (
    'box that its polygon or mask shows to be [left, top, right, bottom] (read so)'
)
NO_BOX = 'object without a box (the box of its polygon or mask is taken)'
OTHER_FORM = 'run lengths in another form than COCO has (read as run lengths)'
NUMBERS = re.compile(r'\s*\d+([\s,]+\d+)+\s*')
CORNERS = 0  # the bbox_mode of detectron2 for [left, top, right, bottom]


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
    file: CocoFile,
    report: Report,
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The names of the categories by their ids, and the classes in the order of the file.

    Categories that stand for no class are left out if no object has them: Roboflow's first one,
    which is the name of the project, and the background of some converters.
    """
    path = file.path
    given = file.content.get('categories')
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
            key = id_of(category['id'])
            name = category['name']
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
    file: CocoFile,
    part: Split,
    names: dict[str, str],
    report: Report,
) -> Iterator[Labelled]:
    """The images of a split that the file has."""
    images = part.inventory.images(part.images)
    num_outlines = 0
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
        if are_elsewhere(plain_name(entry.name), stem):
            report.note(ELSEWHERE, entry.name)
        with errors_at(file.path):
            item = labelled(image, file, entry, names, report)
        for shape in item.shapes:
            num_outlines += shape.outline is not None
        yield item
    for name in part.options.get('unlisted', ()):
        report.note('image that no COCO file lists (not labelled, so left out)', name)
    unlike = report.count(UNLIKE)
    corners = report.count(ARE_CORNERS)
    both = num_outlines - report.count(NO_BOX)
    if unlike + corners > max(1, both / 2):
        what = ''
        if corners > unlike:
            what = 'they are [left, top, right, bottom]: '
        raise ValueError(
            f'{file.path}: {unlike + corners} of {both} boxes are unlike their polygons or masks; '
            f"{what}write COCO's [left, top, width, height] in bbox"
        )


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
    num_different = len(np.unique(table[:, :4], axis=0))
    is_varied = num_different >= LEAST_BOXES or is_beyond.all()
    are_many = is_beyond.sum() >= max(2, BEYOND_SHARE * len(table))
    if are_corners and is_varied and are_many:
        raise ValueError(
            "boxes are [left, top, right, bottom], by which all are in their images, and by COCO's "
            '[left, top, width, height] most are not: write them so'
        )


def labelled(
    image: Path,
    file: CocoFile,
    entry: Entry,
    names: dict[str, str],
    report: Report,
) -> Labelled:
    """An image with its objects."""
    item = Labelled(image, size=entry.size, gsd=entry.gsd)
    info = file.content.get('info')
    convention = info.get('angle_version') if isinstance(info, dict) else None
    for given in map(file.annotation, entry.numbers):
        where = f'{file.path.name}, annotation {given["id"]}'
        with errors_at(where):
            key = id_of(given.get('category_id'))
            if key not in names:
                kind = f'object of category {key}, which the file does not list'
                item.leave_out(kind, where)
                continue
            note = partial(report.note, where=where)
            if given.get('score') is not None:
                note(SCORED)
            annotation = Annotation(given, entry.size, convention, note)
            shape = annotation.shape(names[key])
            if shape is None:
                kind = POINTS if given.get('keypoints') else NO_PLACE
                item.leave_out(kind, where, names[key])
                continue
            shape.crowd = is_set(given.get('iscrowd')) or is_set(given.get('ignore'))
            shape.where = where
            item.shapes.append(shape)
    known = {*names}
    if entry.absent is not None:
        present = {shape.label for shape in item.shapes}
        known = {key for key in names if key in entry.absent or names[key] in present}
    known -= entry.unfinished
    if known != {*names}:
        item.labelled = frozenset(names[key] for key in known)
    return item


@dataclass(frozen=True)
class Annotation:
    """An annotation of COCO; its methods raise ValueError for numbers that cannot be meant."""

    given: dict[str, Any]
    # (height, width) of the image, which run lengths must have.
    size: tuple[int, int] | None
    # Of (x, y, w, h, angle), as `angle_version` of `info` names it.
    convention: str | None
    note: Callable[[str], None]  # counts what is unusual of it

    def shape(self, label: str) -> Shape | None:
        """The object; None without a box and an outline."""
        outline = self.outline()
        five = self.given.get('rbox') or self.given.get('bbox')
        if isinstance(five, list) and len(five) == 5:
            if self.convention is None:
                raise ValueError(
                    'a box of five numbers, and no info.angle_version in the file'
                )
            values = finite_numbers(five, 'a number of the box')
            check_rectangle(values, self.convention)
            return geometry.polygon_shape(label, rectangle_corners(np.asarray(values)))
        box = self.box(outline)
        if box is None or (0 in box[2:] and self.given.get('keypoints')):
            return None
        attributes = self.given.get('attributes')
        rotation = attributes.get('rotation') if isinstance(attributes, dict) else None
        if not rotation or outline or 0 in box[2:]:
            return Shape(label, box, outline)
        (angle,) = finite_numbers([rotation], 'attributes.rotation')
        return geometry.rotated_shape(label, box, angle)

    def outline(self) -> Outline | None:
        """Its polygons or run lengths, also in forms that COCO has not; None for none."""
        given = unquoted(self.given.get('segmentation'))
        if not given:
            return None
        if isinstance(given, dict):
            return self.lengths(given)
        if are_polygons(given):
            return given
        if not isinstance(given, list):
            raise ValueError(
                f'segmentation is {given!r:.80}, neither polygons nor run lengths'
            )
        if all(isinstance(part, dict) for part in given):
            self.note(OTHER_FORM)
            lengths = [found for found in map(self.lengths, given) if found]
            return geometry.merge_outlines(lengths) or None
        return self.polygons(given)

    def polygons(self, given: list[Any]) -> list[list[float]] | None:
        """The polygons of a list in another form; None if none has three corners."""
        is_one = is_points(given) or not isinstance(given[0], (list, dict))
        parts = [given] if is_one else given
        for part in parts:
            if not isinstance(part, list):
                raise ValueError(f'segmentation has {part!r:.80}, which is no polygon')
        kept = []
        for part in parts:
            values = chain(*part) if is_points(part) else part
            points = finite_numbers([*values], 'a coordinate')
            if len(points) >= 6 and len(points) % 2 == 0:
                kept.append(points)
        if len(kept) < len(parts):
            rest = 'its box is taken'
            if kept:
                rest = 'its other parts are taken'
            self.note(f'polygon with a part of less than three corners ({rest})')
        if kept and kept != given:
            self.note('polygons in another form than COCO has (read as polygons)')
        return kept or None

    def lengths(self, given: dict[str, Any]) -> Outline | None:
        """COCO's run lengths, compressed; None if they are incomplete or of no pixel."""
        counts = unquoted(given.get('counts'))
        sides = unquoted(given.get('size'))
        if not counts or not sides:
            self.note('run lengths without counts or size (left out)')
            return None
        if counts is not given['counts'] or sides is not given['size']:
            self.note(OTHER_FORM)
        if isinstance(counts, (list, tuple)):
            counts = [*map(int, finite_numbers(counts, 'a run length'))]
        if isinstance(sides, (list, tuple)):
            sides = [*map(int, finite_numbers(sides, 'a side of run lengths'))]
            size = [*self.size] if self.size else sides
            if sides != size:
                raise ValueError(
                    f'run lengths of {sides} for an image of {size} (height, width)'
                )
        lengths = geometry.run_lengths(dict(size=sides, counts=counts))
        if not geometry.coco_mask.area(lengths):
            self.note('run lengths without a pixel (left out)')
            return None
        return geometry.text_lengths(lengths)

    def box(self, outline: Outline | None) -> Box | None:
        """The box, else the box of the outline; None without both."""
        given = self.given.get('bbox')
        mode = self.given.get('bbox_mode')
        if mode not in (None, CORNERS, 1):
            raise ValueError(
                f'bbox_mode is {mode!r}, not 0 (corners) or 1 (corner, width, height)'
            )
        if given and not (isinstance(given, list) and len(given) == 4):
            raise ValueError(f'bbox is {given!r:.80}, not [left, top, width, height]')
        if given and not is_plain(given):
            given = finite_numbers(given, 'a number of bbox')
            self.note('box whose numbers are text (read as numbers)')
        around = geometry.outline_box(outline) if outline else None
        if not given or (around and 0 in given[2:]):
            if around:
                self.note(NO_BOX)
            return around
        left, top, width, height = given
        if mode == CORNERS:
            width = width - left
            height = height - top
        if width < 0 or height < 0:
            self.note('box of negative width or height (its corners put in order)')
            corners = [left, top, left + width, top + height]
            left, top, width, height = geometry.bounding_box(corners)
        if around:
            boxes = np.array([(left, top, width, height), around], float)
            share = geometry.coco_mask.iou(boxes[:1], boxes[1:], [0])[0, 0]
            as_corners = left, top, width - left, height - top
            if not are_near(boxes[0], around) and are_near(as_corners, around):
                self.note(ARE_CORNERS)
                return as_corners
            if share < 0.5:
                self.note(UNLIKE)
        return left, top, width, height


def are_near(box: Iterable[float], other: Iterable[float]) -> bool:
    """Return whether no number of two boxes differs by more than two pixels."""
    return max(map(abs, map(operator.sub, box, other))) <= 2


def are_polygons(given: Any) -> bool:
    """Return whether an outline is as COCO has it, [[x, y, x, y, ...], ...] of finite numbers."""
    with suppress(TypeError, OverflowError):
        for points in given:
            if len(points) < 6 or len(points) % 2 or not math.isfinite(sum(points)):
                return False
        return True
    return False


def is_points(given: Any) -> bool:
    """Return whether something is a list of at least three points [x, y]."""
    if not isinstance(given, list) or len(given) < 3:
        return False
    return all(isinstance(point, list) and len(point) == 2 for point in given)


def is_plain(box: Any) -> bool:
    """Return whether a box is a list of four finite numbers."""
    with suppress(TypeError, OverflowError):
        return type(box) is list and len(box) == 4 and math.isfinite(sum(box))
    return False


def unquoted(given: Any) -> Any:
    """A value that is given as its text in Python or JSON: "b'...'", '[5, 5]', '5 5', '{...}'."""
    if not isinstance(given, str):
        return given
    if NUMBERS.fullmatch(given):
        return re.split(r'[\s,]+', given.strip())
    if given.startswith(('{', '[', '(', "b'", 'b"')):  # as compressed counts also may
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return ast.literal_eval(given)
    return given
