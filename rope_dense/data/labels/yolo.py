"""YOLO: a text file for each image, a line for each object, in fractions of the image size.

A line, see https://docs.ultralytics.com/datasets, has the number of the class, then a box
(centre, width, height), the corners of a polygon or of a rotated box, or a box with key points.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from math import isfinite
from pathlib import Path

import numpy as np

from .dota import has_corners
from .files import PlacedError, finite_numbers, read_numbered_lines, read_text
from .geometry import polygon_shape
from .label_folder import Read, Split
from .objects import Labelled, Report, Shape
from .pairs import read_pairs
from .places import FileKind
from .yolo_yaml import read_names_above

FARTHEST = 2.0  # fraction of the image size: numbers beyond are no fractions
BORDER = 0.05  # of the image, by which corners may be outside
PARALLEL = 0.01  # of the image, by which opposite sides of a rotated box may differ
# Folders of DOTA's labels and of lists, and lists of classes.
NO_LABELS = re.compile(
    r'(^|/)((labeltxt[^/]*|annfiles|imagesets)/|(classes|labels)\.txt$)', re.I
)
OF_DOTA = 'four corners and a class, as of DOTA: name the folder labelTxt'
BEYOND = 0.1  # of the image, by which boxes of corners, read as sizes, leave it
TWO_READINGS = (
    'three corners, or a box with two more numbers (angle, score or track number)? For boxes leave '
    'class x y width height, for rotated boxes write their four corners, for triangles one corner '
    'twice'
)
NUMBER = re.compile('-*[0-9.]')  # the start of one
KPT_SHAPE = 'write kpt_shape: [points, 2 or 3] to data.yaml'


def read_yolo(part: Split, classes: Sequence[str] | None, report: Report) -> Read:
    """All images of a split; one without a label file has no objects.

    ValueError if no image has a label file, or nothing names the classes.

    Args:
        classes: names in the order of the class numbers; None for the names in
            classes.txt, NAME.names or a yaml, in the folder of the labels or above.
    """
    names = classes or ()
    options = dict(part.options)
    if not names:
        found = read_names_above([part.source], part.inventory)
        if found is None:
            raise ValueError(
                f'{part.source}: no names of classes: write them to classes.txt in it or above, '
                'one a line in the order of their numbers, or give --classes'
            )
        names, said = found
        options = said | options
    if not part.files.pairs and not part.options.get('unpublished'):
        raise ValueError(
            f'{part.images}: none of its {len(part.files.unlabelled)} images has a label file: '
            f'a.jpg needs a.txt in {part.source}, or beside it'
        )
    lines = LineReader(part, names, options.get('kpt_shape'), report)

    def count(path: Path) -> int | None:
        return sum(map(is_yolo, read_text(path).splitlines())) or None

    def items() -> Iterator[Labelled]:
        yield from read_pairs(part, FILES, report, lines.read, count)
        lines.check_all()

    return names, items()


@dataclass
class LineReader:
    """Reads the lines of the label files of a split, and remembers what only all of them show."""

    part: Split
    names: Sequence[str]  # of the classes, in the order of their numbers
    kpt_shape: tuple[int, int] | None  # (points, numbers of a point) of pose labels
    report: Report
    numbers: set[int] = field(default_factory=set)  # of the classes in the lines
    boxes: int = 0
    corners: int = 0  # boxes that may be left, top, right and bottom
    # Such boxes that else leave their image.
    beyond: list[str] = field(default_factory=list)
    outlines: int = 0
    triangles: list[str] = field(default_factory=list)  # or boxes with two more numbers
    # Outlines, as long as all of them may be boxes with key points.
    pose_like: list[str] = field(default_factory=list)

    def check_all(self) -> None:
        """Refuse or note what only all lines of a split show."""
        count = len(self.names)
        source = self.part.source
        if 0 not in self.numbers and max(self.numbers, default=0) == count:
            raise ValueError(
                f'{source}: the numbers of {count} classes are 0 to {count - 1}, and those in the '
                f'labels {min(self.numbers)} to {count}: do they count from 1?'
            )
        if len(self.triangles) > 1 and self.outlines == len(self.triangles):
            raise ValueError(
                f'{source}: {self.triangles[0]} has 6 numbers after the class, as all other '
                f'polygons: {TWO_READINGS}'
            )
        most = self.boxes / (4 if self.corners == self.boxes else 2)
        if len(self.beyond) > max(1, most):
            raise ValueError(
                f'{source}: {self.beyond[0]} and more have boxes that leave the image as '
                'x y width height, and not as left top right bottom: write centre and size'
            )
        if self.outlines and self.outlines == len(self.pose_like):
            kind = (
                f'line read as a polygon; if it is a box with key points, {KPT_SHAPE}'
            )
            self.report.note(kind, self.pose_like[0], self.outlines)

    def read(self, path: Path, file: Path) -> Labelled:
        """An image with the objects of its label file."""
        item = Labelled(file)
        lines = list(read_numbered_lines(path))
        if not lines:
            return item
        try:
            image = self.part.inventory.header(file)
        except ValueError:  # such an image is left out, and counted with its objects
            for where, _ in lines:
                item.leave_out('object of an image that cannot be read', where)
            return item
        for where, line in lines:
            try:
                numbers = numbers_in(line)
                number = int(numbers[0])
                self.numbers.add(number)
                is_known = 0 <= number < len(self.names)
                label = ''
                if is_known:
                    label = self.names[number]
                size = image.width, image.height
                shape = self.shape(label, numbers[1:], size, where)
            except ValueError as error:  # ``errors_at`` would cost more than the line
                raise PlacedError(f'{path.with_name(where)}: {error}') from error
            if is_known:
                item.shapes.append(shape)
            else:
                item.leave_out(f'object of the unknown class {number}', where)
        return item

    def shape(
        self,
        label: str,
        values: Sequence[float],
        size: tuple[int, int],
        where: str,
    ) -> Shape:
        """The object of the numbers behind the class, in an image of `size` (width, height)."""
        count = len(values)
        if self.kpt_shape is not None:
            expected = 4 + self.kpt_shape[0] * self.kpt_shape[1]
            if count != expected:
                raise ValueError(
                    f'{count} numbers after the class, and by kpt_shape {expected}'
                )
            self.report.note('box with key points (the points are not used)', where)
        elif count == 5 and 0 <= values[4] <= 1:
            kind = 'box with a fifth number (taken as its score; an angle is not read)'
            self.report.note(kind, where)
        elif count != 4:
            pairs = zip(self.outline(values, where), cycle(size))
            corners = [value * side for value, side in pairs]
            return polygon_shape(label, corners, where=where)
        x, y, across, down = values[:4]
        if max(map(abs, values[:4])) > FARTHEST:
            far = max(values[:4], key=abs)
            raise ValueError(
                f'{far:g} is no fraction of the image size, 0 to 1: is it in pixels?'
            )
        if self.kpt_shape is None:
            self.boxes += 1
            if 0 <= x < across <= 1 and 0 <= y < down <= 1:
                self.corners += 1
                right = x + across / 2 - 1
                bottom = y + down / 2 - 1
                if max(right, bottom, across / 2 - x, down / 2 - y) > BEYOND:
                    self.beyond.append(where)
        width, height = size
        left = (x - across / 2) * width
        top = (y - down / 2) * height
        box = left, top, across * width, down * height
        return Shape(label, box, where=where)

    def outline(self, values: Sequence[float], where: str) -> Sequence[float]:
        """The corners of an outline, without a score, else ValueError."""
        count = len(values)
        if count > 7 and count % 2 and (count - 4) % 3 and 0 <= values[-1] <= 1:
            # Not so where the numbers may be of key points.
            kind = 'polygon with a number behind it (taken as its score)'
            self.report.note(kind, where)
            values = values[:-1]
        elif count < 6 or count % 2:
            hint = 'is a fifth an angle? For rotated boxes write their four corners; '
            raise ValueError(
                f'{count} numbers after the class; a box has 4, or 5 with a score from 0 to 1, a '
                f'polygon 6 or more, two for each corner; {hint if count == 5 else ""}for key '
                f'points, {KPT_SHAPE}'
            )
        farthest = max(values, key=lambda value: abs(value - 0.5))
        if abs(farthest - 0.5) > 0.5 + BORDER:
            other = TWO_READINGS if count == 6 else f'Or key points? Then {KPT_SHAPE}'
            raise ValueError(
                f'a corner at {farthest:g}, where 0 to 1 is the image: are the labels in pixels? '
                f'{other}'
            )
        if count == 6:
            self.report.note('polygon of three corners', where)
            x, y, across, down = values[:4]
            reach_x = abs(x - 0.5) + across / 2
            reach_y = abs(y - 0.5) + down / 2
            if max(reach_x, reach_y) < 0.5 + BORDER and min(across, down) > 0:
                self.triangles.append(where)
        if count > 9 and may_be_pose(values, 3):
            raise ValueError(
                f'a box with points in it and 0, 1 or 2 behind each: {KPT_SHAPE}'
            )
        if len(self.pose_like) == self.outlines and may_be_pose(values, 2):
            self.pose_like.append(where)
        self.outlines += 1
        return values


def numbers_in(line: str) -> tuple[float, ...]:
    """The numbers of a line; ValueError unless they are finite, and the class a whole number."""
    words = line.split()
    try:
        numbers = tuple(map(float, words))
    except ValueError:
        numbers = ()
    if numbers and isfinite(sum(numbers)) and numbers[0].is_integer():
        return numbers
    if not numbers and has_corners(line):
        raise ValueError(OF_DOTA)
    (number,) = finite_numbers(words[:1], 'the class')
    if not number.is_integer():
        raise ValueError(f'the class is {words[0]!r}, which is no whole number')
    return tuple(finite_numbers(words))


def may_be_pose(values: Sequence[float], step: int) -> bool:
    """Return whether numbers may be a box and points in it, of `step` numbers each.

    Points without a label are 0, 0. The corners of a rotated box are no such points.
    """
    if len(values) == 8:
        differences = np.dot([1, -1, 1, -1], np.reshape(values, (-1, 2)))
        if np.abs(differences).max() < PARALLEL:
            return False
    x, y, width, height = values[:4]
    points = [values[n : n + step] for n in range(4, len(values), step)]
    if len(points[-1]) != step:
        return False
    for point in points:
        across = abs(point[0] - x)
        down = abs(point[1] - y)
        if any(point[:2]) and (across > width / 2 or down > height / 2):
            return False
        if step == 3 and point[2] not in (0, 1, 2):
            return False
    return True


def is_yolo(line: str) -> bool:
    """Return whether a line is a class and numbers; also if they are not as they should be."""
    words = line.replace(',', ' ').split()
    return len(words) > 4 and all(map(NUMBER.match, words))


def has_yolo(path: Path) -> bool:
    """Return whether the first line of a text file is a class and numbers, and not DOTA's."""
    if NO_LABELS.search('/'.join(path.parts[-4:])):
        return False
    return is_yolo(next(read_numbered_lines(path), ('', ''))[1])


FILES = FileKind(
    'YOLO',
    'a label file',
    ('.txt',),
    'labels?',
    is_one=has_yolo,
    negatives=True,
    lists='',
)
