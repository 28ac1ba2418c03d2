"""The result of every reader: images with their objects, and a report of the rest.

A box is (left, top, width, height) in pixels; an outline is a list of polygons [x, y, x, y, ...]
in pixels, or COCO's run lengths. Both refer to the pixels that the labels describe: ``Labelled``
has their size where the labels say it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .inventory import Inventory
    from .pairs import Kind

Box = tuple[float, float, float, float]
Outline = list[list[float]] | dict[str, Any]  # polygons, or run lengths {'size': [h, w], 'counts'}
EXAMPLES = 3  # of a kind are named
# Controls, halves of a pair of UTF-16, and marks of direction, which change a terminal or a file.
UNSEEN = re.compile(
    '[\x00-\x1f\x7f-\x9f\ud800-\udfff\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]'
)
NO_IMAGE = 'object of an image that is not there'


@dataclass
class Shape:
    """An object of an image.

    Attributes:
        label: name of its class.
        box: its corners may be in any order and outside of the image.
        outline: polygons or run lengths; None for a box.
        crowd: neither trained nor evaluated: COCO's ``iscrowd`` and ``ignore``.
        difficult: trained and not evaluated: VOC's and DOTA's.
        where: the place of its label, such as 'a.txt, line 3'.
    """

    label: str
    box: Box
    outline: Outline | None = None
    crowd: bool = False
    difficult: bool = False
    where: str = ''


@dataclass
class Labelled:
    """An image file with its objects.

    Attributes:
        size: (height, width) in pixels by the labels; None if they do not say it.
        lost: (kind, place, class or '') of each object that is left out, see ``Report``.
    """

    file: Path
    shapes: list[Shape] = field(default_factory=list)
    size: tuple[int, int] | None = None
    lost: list[tuple[str, str, str]] = field(default_factory=list)

    def leave_out(self, kind: str, where: str, label: str = '') -> None:
        """Leave out an object; an image that loses all of its objects is left out, too."""
        self.lost.append((kind, where, label))


@dataclass
class Places:
    """Number of findings, and the first places."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, where: Iterable[str], count: int) -> None:
        """Count more of it."""
        self.count += count
        new = [place for place in dict.fromkeys(where) if place not in self.examples]
        self.examples += new[: EXAMPLES + 1 - len(self.examples)]


@dataclass
class Report:
    """Changes to the labels of a split, and objects that are left out.

    Attributes:
        kept: number of objects that are trained or evaluated.
        num_cut: how many of them lose a tenth of their box or more at the border of the image.
        num_rotated: how many of them are rectangles that are not upright, where these are read.
        notes: what was changed or is unusual, by kind.
        left_out: objects that no training and no evaluation sees, by reason.
    """

    kept: int = 0
    num_cut: int = 0
    num_rotated: int = 0
    notes: dict[str, Places] = field(default_factory=dict)
    left_out: dict[str, Places] = field(default_factory=dict)

    def note(self, kind: str, where: object, count: int = 1) -> None:
        """Count something that was changed, or is unusual."""
        self.notes.setdefault(kind, Places()).add([str(where)], count)

    def leave_out(self, kind: str, where: object, count: int = 1) -> None:
        """Count objects that are left out, and that no ``Labelled`` counts."""
        self.left_out.setdefault(kind, Places()).add([str(where)], count)

    def leave_out_image(self, name: str, count: int) -> None:
        """Count an image that is not there, and its objects."""
        if count:
            self.leave_out(NO_IMAGE, name, count)
        else:
            self.note('image that is not there, and has no object', name)

    def count(self, kind: str) -> int:
        """Number of times that something was noted."""
        return self.notes[kind].count if kind in self.notes else 0

    def merge(self, other: Report) -> None:
        """Add the counts of another report."""
        self.kept += other.kept
        self.num_cut += other.num_cut
        self.num_rotated += other.num_rotated
        for mine, others in ((self.notes, other.notes), (self.left_out, other.left_out)):
            for kind, places in others.items():
                mine.setdefault(kind, Places()).add(places.examples, places.count)

    @property
    def num_left_out(self) -> int:
        return sum(places.count for places in self.left_out.values())

    def lines(self) -> list[str]:
        """A line for each kind: '3 x box outside of its image (clipped): a.jpg, b.jpg'."""
        lines = []
        for kinds, suffix in ((self.left_out, ' (left out)'), (self.notes, '')):
            for kind, places in kinds.items():
                names = ', '.join(places.examples[:EXAMPLES])
                names += ' ...' if len(places.examples) > EXAMPLES else ''
                lines.append(seen(f'{places.count} x {kind}{suffix}: {names}'))
        return lines

    def __str__(self) -> str:
        return '\n'.join(self.lines()) or 'nothing unusual'


def seen(text: str) -> str:
    """A text without control characters, such as the ones that a terminal obeys."""
    return UNSEEN.sub('', text)


@dataclass(frozen=True)
class Part:
    """The labels of a split.

    Attributes:
        source: folder or file of the labels.
        images: folder of the images.
        names: its images, by their paths in that folder, without suffix; None for all.
        options: what a file of the data set says of its format, such as YOLO's ``kpt_shape``.
        inventory: the files of the data set.
        pairs: of formats with a file for each image: the image of each file.
        orphans: files without an image of their own, and the reason.
        unlabelled: images without a file.
        absent: names of images that are listed and not there.
        notes: (kind, place) for the report.
    """

    source: Path
    images: Path
    names: frozenset[str] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    inventory: Inventory = None  # type: ignore[assignment]
    pairs: Mapping[Path, Path] = field(default_factory=dict)
    orphans: Mapping[Path, str] = field(default_factory=dict)
    unlabelled: Sequence[Path] = ()
    absent: Sequence[str] = ()
    notes: Sequence[tuple[str, str]] = ()

    def has(self, stem: str) -> bool:
        """Return whether an image of this path, without suffix, is of this split."""
        return self.names is None or stem in self.names


# The classes in their order, or () for those that occur, sorted; and the images.
Read = tuple[Sequence[str], Iterator[Labelled]]


@dataclass(frozen=True)
class Format:
    """An annotation format: one module of this folder.

    Attributes:
        name: such as 'voc', for settings and the command line.
        title: such as 'Pascal VOC', for reports.
        suffixes: of its label files.
        find: the data set in a folder; None if the folder has no labels of this format. Raises
            ValueError for labels that cannot be used, with what was looked for and found.
        kind: of its files, if each image has one.
        read: the images of a split with their objects. Takes the labels, the classes or None for
            all in the labels, and the report. Raises ValueError, which names file and place.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    find: Callable[[Inventory], LabelFolder | None]
    read: Callable[[Part, Sequence[str] | None, Report], Read]
    kind: Kind | None = None


@dataclass(frozen=True)
class LabelFolder:
    """A recognised data set.

    Attributes:
        format: of its labels.
        splits: 'train' and 'val'.
        split_by: what says which image is in which split, in words: 'ImageSets (train.txt, ...)'.
        classes: names of its classes in their order; None for all in the labels.
        notes: lines for the report.
    """

    format: Format
    splits: Mapping[str, Part]
    split_by: str
    classes: Sequence[str] | None = None
    notes: tuple[str, ...] = ()

    def known(self) -> object:
        """All that is known beside the splits."""
        return self.format.name, self.classes, self.split_by, self.notes
