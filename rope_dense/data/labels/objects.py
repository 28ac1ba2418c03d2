"""The result of every reader: images with their objects, and a report of the rest.

A box is (left, top, width, height) in pixels; an outline is a list of polygons [x, y, x, y, ...]
in pixels, or COCO's run lengths. Both refer to the pixels that the labels describe: ``Labelled``
has their size where the labels say it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Box = tuple[float, float, float, float]
# Polygons, or run lengths {'size': [h, w], 'counts'}.
Outline = list[list[float]] | dict[str, Any]
EXAMPLES = 3  # of a kind are named
# Of a split's objects, maps or pixels; what loses more is refused.
MOST_LEFT_OUT = 0.1
# Controls, halves of a pair of UTF-16, and marks of direction, which change a terminal or a file.
UNSEEN = re.compile(
    '[\x00-\x1f\x7f-\x9f\ud800-\udfff\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]'
)
NO_IMAGE = 'object of an image that is not there'
ELSEWHERE = 'image in another folder than its name says (taken by its name)'


@dataclass
class Shape:
    """An object of an image."""

    label: str  # name of its class
    box: Box  # its corners may be in any order and outside of the image
    outline: Outline | None = None  # None for a box
    # Neither trained nor evaluated: ``iscrowd``, ``ignore`` and ``difficult``.
    crowd: bool = False
    where: str = ''  # the place of its label, such as 'a.txt, line 3'


@dataclass
class Labelled:
    """An image file with its objects."""

    file: Path
    shapes: list[Shape] = field(default_factory=list)
    # (height, width) by the labels; None if they do not say it.
    size: tuple[int, int] | None = None
    # (kind, place, class or '') of each object that is left out, see ``Report``.
    lost: list[tuple[str, str, str]] = field(default_factory=list)
    # Classes that are no background here where they have no object; None for all.
    labelled: frozenset[str] | None = None
    # Ground distance of a pixel as the labels have it, see ``data.ground``; None for none.
    gsd: object = None

    def leave_out(self, kind: str, where: str, label: str = '') -> None:
        """Leave out an object; an image that loses all of its objects is left out, too."""
        self.lost.append((kind, where, label))


@dataclass
class Findings:
    """Number of findings, and the first places."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, where: Iterable[str], count: int) -> None:
        """Count more of it."""
        self.count += count
        for place in where:
            if len(self.examples) <= EXAMPLES and place not in self.examples:
                self.examples.append(place)


@dataclass
class Report:
    """Changes to the labels of a split by kind, and objects that are left out by reason."""

    kept: int = 0  # objects that are trained or evaluated
    # Of these, the ones that lose a tenth of their box or more at the border.
    num_cut: int = 0
    # Of these, rectangles that are not upright, where rectangles are read.
    num_rotated: int = 0
    notes: dict[str, Findings] = field(default_factory=dict)
    left_out: dict[str, Findings] = field(default_factory=dict)

    def note(self, kind: str, where: object, count: int = 1) -> None:
        """Count something that was changed, or is unusual."""
        self.notes.setdefault(kind, Findings()).add([str(where)], count)

    def leave_out(self, kind: str, where: object, count: int = 1) -> None:
        """Count objects that are left out, and that no ``Labelled`` counts."""
        self.left_out.setdefault(kind, Findings()).add([str(where)], count)

    def leave_out_image(self, name: str, count: int) -> None:
        """Count an image that is not there, and its objects."""
        if count:
            self.leave_out(NO_IMAGE, name, count)
        else:
            self.note('image that is not there, and has no object', name)

    def note_results(self, paths: Iterable[str]) -> None:
        """Note the results of commands that lie in a data set, ``Inventory.skipped``."""
        for path in paths:
            self.note('result of rope-dense (left out)', os.path.basename(path))

    def count(self, kind: str) -> int:
        """Number of times that something was noted."""
        return self.notes[kind].count if kind in self.notes else 0

    def merge(self, other: Report) -> None:
        """Add the counts of another report."""
        self.kept += other.kept
        self.num_cut += other.num_cut
        self.num_rotated += other.num_rotated
        both = ((self.notes, other.notes), (self.left_out, other.left_out))
        for mine, others in both:
            for kind, places in others.items():
                mine.setdefault(kind, Findings()).add(places.examples, places.count)

    @property
    def num_left_out(self) -> int:
        return sum(places.count for places in self.left_out.values())

    def lines(self) -> list[str]:
        """A line for each kind: '3 x box outside of its image (clipped): a.jpg, b.jpg'."""
        lines = []
        for kinds, suffix in ((self.left_out, ' (left out)'), (self.notes, '')):
            for kind, places in kinds.items():
                names = ', '.join(places.examples[:EXAMPLES])
                if len(places.examples) > EXAMPLES:
                    names += ' ...'
                line = f'{places.count} x {kind}{suffix}: {names}'
                lines.append(printable_text(line))
        return lines


def printable_text(text: str) -> str:
    """A text without control characters, such as the ones that a terminal obeys."""
    return UNSEEN.sub('', text)
