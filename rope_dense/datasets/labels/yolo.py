"""YOLO: a text file for each image, a line for each object, in shares of the image.

A line, see https://docs.ultralytics.com/datasets, has the number of the class, then a box
(centre, width, height), the corners of a polygon or of a rotated box, or a box with key points.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from ..images.headers import read_header
from .dota import has_corners
from .files import Images, PlacedError, finite, numbered_lines, read_text
from .geometry import polygon_shape
from .objects import NO_IMAGE, Format, LabelFolder, Labelled, Labels, Read, Report, Shape
from .yolo_files import matched
from .yolo_folders import OF_DOTA, find_data_set, is_yolo
from .yolo_yaml import names_above, options_in

FARTHEST = 2.0  # shares of the image: numbers beyond are no shares
BORDER = 0.05  # of the image, by which corners may be outside
PARALLEL = 0.01  # of the image, by which opposite sides of a rotated box may differ
BEYOND = 0.1  # of the image, by which boxes of corners, read as sizes, leave it
TRACKED = 'box, score and track number? Leave class x y width height'
KPT_SHAPE = 'write kpt_shape: [points, 2 or 3] to data.yaml'


def find_yolo(root: Path) -> LabelFolder | None:
    """A data.yaml or obj.data with the splits; or folders of images, of labels, and classes.txt."""
    found = find_data_set(root)
    return LabelFolder(YOLO, *found) if found else None


def read_yolo(labels: Labels, classes: Sequence[str] | None, report: Report) -> Read:
    """All images of a split; one without a label file has no objects.

    Args:
        classes: names in the order of the class numbers; None for the names in
            classes.txt, NAME.names or a yaml, in the folder of the labels or above.
    """
    names, options = (tuple(classes), labels.options) if classes else named(labels)
    images = Images(labels, report)
    files, rest = matched(labels, images, report)
    note_absent(labels, images, rest, report)
    chosen = {file: files.get(stem) for stem, file in images.chosen()}
    if not any(chosen.values()) and (labels.names is None or not files):
        raise ValueError(
            f'{labels.images}: none of its {len(chosen)} images has a label file: a.jpg needs '
            f'a.txt in {labels.source}, or beside it'
        )
    if any(chosen.values()):  # not so in a split whose labels are not published
        for file in (file for file, path in chosen.items() if path is None):
            report.note('image without a label file (no objects)', file.name)
    return names, Lines(labels.source, names, options.get('kpt_shape'), report).read(chosen)


def named(labels: Labels) -> tuple[Sequence[str], Mapping[str, Any]]:
    """The names of classes in or above a folder of labels, and the options of the labels."""
    if found := names_above(labels.source):
        return found[1], {**options_in(found[0]), **labels.options}
    raise ValueError(
        f'{labels.source}: no names of classes: write them to classes.txt in it or above, one a '
        'line in the order of their numbers, or give --classes'
    )


def note_absent(labels: Labels, images: Images, rest: Mapping[str, Path], report: Report) -> None:
    """Report label files without an image, and listed images that are not there."""
    for stem, path in rest.items():
        if not (count := sum(map(is_yolo, read_text(path).splitlines()))):
            continue  # no objects, or a text of another kind
        if labels.has(stem):
            report.leave_out(NO_IMAGE, path.name, count)
        else:
            report.note('label file without an image, in no split', path.name)
    for stem in sorted((labels.names or frozenset()) - images.by_stem.keys() - rest.keys()):
        report.leave_out('listed image that is not there', stem)


@dataclass
class Lines:
    """Reads the lines of the label files of a split.

    Attributes:
        source: their folder.
        names: of the classes, in the order of their numbers.
        kpt_shape: (points, numbers of a point) of pose labels; None for other labels.
        outlines: number of polygons.
        pose_like: places of polygons, as long as all of them may be boxes with key points.
        tracked: places of polygons that may be a box, its score and the number of a track.
        boxes: number of boxes.
        corners: how many of them may be left, top, right and bottom.
        beyond: places of such that leave their image if they are not.
        numbers: of the classes in the lines.
    """

    source: Path
    names: Sequence[str]
    kpt_shape: tuple[int, int] | None
    report: Report
    outlines: int = 0
    pose_like: list[str] = field(default_factory=list)
    tracked: list[str] = field(default_factory=list)
    boxes: int = 0
    corners: int = 0
    beyond: list[str] = field(default_factory=list)
    numbers: set[int] = field(default_factory=set)

    def read(self, files: Mapping[Path, Path | None]) -> Iterator[Labelled]:
        """The images with the objects of their label files."""
        for file, path in files.items():
            item = Labelled(file)
            if path is not None:
                self.add(path, item)
            yield item
        self.check_all()

    def check_all(self) -> None:
        """Refuse or note what only all lines of a split show.

        Raises:
            ValueError: classes count from 1, boxes are two corners, or lines are of tracks.
        """
        count = len(self.names)
        if 0 not in self.numbers and max(self.numbers, default=0) == count:
            raise ValueError(
                f'{self.source}: the numbers of {count} classes are 0 to {count - 1}, and those in '
                f'the labels {min(self.numbers)} to {count}: do they count from 1?'
            )
        if self.tracked and self.outlines == len(self.tracked):
            raise ValueError(
                f'{self.source}: {self.tracked[0]} has 6 numbers after the class, as all other '
                f'outlines: {TRACKED}'
            )
        most = self.boxes / (4 if self.corners == self.boxes else 2)
        if len(self.beyond) > max(1, most):
            raise ValueError(
                f'{self.source}: {self.beyond[0]} and more have boxes that leave the image as '
                'x y width height, and not as left top right bottom: write centre and size'
            )
        if self.outlines and self.outlines == len(self.pose_like):
            kind = f'line read as a polygon; if it is a box with key points, {KPT_SHAPE}'
            self.report.note(kind, self.pose_like[0], self.outlines)

    def add(self, path: Path, item: Labelled) -> None:
        """Add the objects of a label file to its image."""
        if not (lines := list(numbered_lines(path))):
            return
        try:
            image = item.header = read_header(item.file)
        except ValueError:  # such an image is left out, and counted with its objects
            for where, _ in lines:
                item.leave_out('object of an image that cannot be read', where)
            return
        seen = set[tuple[float, ...]]()
        for where, line in lines:
            try:
                numbers = numbers_in(line)
                number = int(numbers[0])
                self.numbers.add(number)
                is_known = 0 <= number < len(self.names)
                label = self.names[number] if is_known else ''
                shape = self.shape(label, numbers[1:], (image.width, image.height), where)
            except ValueError as error:  # ``naming`` would cost more than the line
                raise PlacedError(f'{path.with_name(where)}: {error}') from error
            if numbers in seen:
                self.report.note('object that is there twice in one file (taken once)', where)
            elif is_known:
                item.shapes.append(shape)
            else:
                item.leave_out(f'object of the unknown class {number}', where)
            seen.add(numbers)

    def shape(
        self, label: str, values: Sequence[float], size: tuple[int, int], where: str
    ) -> Shape:
        """The object of the numbers behind the class, in an image of `size` (width, height)."""
        count = len(values)
        if self.kpt_shape is not None:
            expected = 4 + self.kpt_shape[0] * self.kpt_shape[1]
            if count != expected:
                raise ValueError(f'{count} numbers after the class, and by kpt_shape {expected}')
            self.report.note('box with key points (the points are not used)', where)
        elif count == 5 and 0 <= values[4] <= 1:
            self.report.note(
                'box with a fifth number (taken as its score; an angle is not read)', where
            )
        elif count != 4:
            self.check_outline(values, where)
            return polygon_shape(
                label, [v * side for v, side in zip(values, cycle(size))], where=where
            )
        if max(map(abs, values[:4])) > FARTHEST:
            raise ValueError(
                f'{max(values[:4], key=abs):g} is no share of the image, 0 to 1: are the labels in '
                'pixels?'
            )
        (width, height), (x, y, across, down) = size, values[:4]
        if self.kpt_shape is None:
            self.count_box(x, y, across, down, where)
        box = (x - across / 2) * width, (y - down / 2) * height, across * width, down * height
        return Shape(label, box, where=where)

    def count_box(self, x: float, y: float, across: float, down: float, where: str) -> None:
        """Count a box, and whether it may be left, top, right and bottom, or only that."""
        self.boxes += 1
        if 0 <= x < across <= 1 and 0 <= y < down <= 1:
            self.corners += 1
            reach = max(x + across / 2 - 1, y + down / 2 - 1, across / 2 - x, down / 2 - y)
            if reach > BEYOND:
                self.beyond.append(where)

    def check_outline(self, values: Sequence[float], where: str) -> None:
        """Refuse numbers that are no polygon in shares of the image."""
        count = len(values)
        if count < 6 or count % 2:
            raise ValueError(
                f'{count} numbers after the class; a box has 4, a polygon 6 or more, two for each '
                f'corner; for key points, {KPT_SHAPE}'
            )
        farthest = max(values, key=lambda value: abs(value - 0.5))
        is_tracked = count == 6 and 0 <= values[4] <= 1 and values[5].is_integer()
        if abs(farthest - 0.5) > 0.5 + BORDER:
            raise ValueError(
                f'a corner at {farthest:g}, where 0 to 1 is the image: are the labels in pixels? '
                f'{f"Or {TRACKED}" if is_tracked else f"For key points, {KPT_SHAPE}"}'
            )
        if is_tracked:
            self.tracked.append(where)
        if count > 9 and may_be_pose(values, 3):
            raise ValueError(f'a box with points in it and 0, 1 or 2 behind each: {KPT_SHAPE}')
        if len(self.pose_like) == self.outlines and may_be_pose(values, 2):
            self.pose_like.append(where)
        self.outlines += 1


def numbers_in(line: str) -> tuple[float, ...]:
    """The numbers of a line.

    Raises:
        ValueError: a word is no finite number, or the class no whole number.
    """
    words = line.split()
    try:
        numbers = tuple(map(float, words))
    except ValueError:
        numbers = ()
    if numbers and isfinite(sum(numbers)) and numbers[0].is_integer():
        return numbers
    if not numbers and has_corners(line):
        raise ValueError(OF_DOTA)
    (number,) = finite(words[:1], 'the class')
    if not number.is_integer():
        raise ValueError(f'the class is {words[0]!r}, which is no whole number')
    return tuple(finite(words))


def may_be_pose(values: Sequence[float], step: int) -> bool:
    """Return whether numbers may be a box and points in it, of `step` numbers each.

    Points without a label are 0, 0. The corners of a rotated box are no such points.
    """
    x, y, width, height = values[:4]
    differences = np.dot([1, -1, 1, -1], np.reshape(values[:8], (-1, 2))) if len(values) == 8 else 1
    if np.abs(differences).max() < PARALLEL:
        return False
    points = [values[n : n + step] for n in range(4, len(values), step)]
    return len(points[-1]) == step and all(
        (not any(point[:2]) or (abs(point[0] - x) <= width / 2 and abs(point[1] - y) <= height / 2))
        and (step == 2 or point[2] in (0, 1, 2))
        for point in points
    )


YOLO = Format('yolo', 'YOLO', ('.txt',), find_yolo, read_yolo)
