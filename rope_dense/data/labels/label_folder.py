"""The labels of a data set: their format, and the images and files of each split."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .inventory import Inventory
from .objects import Labelled, Report
from .places import FileKind

# The classes in their order, or () for those that occur, sorted; and the images.
Read = tuple[Sequence[str], Iterator[Labelled]]


@dataclass(frozen=True)
class SplitFiles:
    """The files of a split, of a format with a file for each image, or for several."""

    pairs: Mapping[Path, Path] = field(default_factory=dict)  # the image of each file
    # The files without an image of their own, and the reason.
    orphans: Mapping[Path, str] = field(default_factory=dict)
    unlabelled: Sequence[Path] = ()  # images without a file
    absent: Sequence[str] = ()  # names of images that are listed and not there
    notes: Sequence[tuple[str, str]] = ()  # (kind, place) for the report


@dataclass(frozen=True)
class Split:
    """The labels of a split."""

    source: Path  # folder or file of the labels
    images: Path  # their folder
    # Its images, by paths without suffix; None for all.
    names: frozenset[str] | None = None
    # What a file of the data set says of its format, such as YOLO's ``kpt_shape``.
    options: Mapping[str, Any] = field(default_factory=dict)
    inventory: Inventory = field(kw_only=True)
    files: SplitFiles = SplitFiles()  # empty if one file has the labels of all images

    def has(self, stem: str) -> bool:
        """Return whether an image of this path, without suffix, is of this split."""
        return self.names is None or stem in self.names

    def takes(self, image: Path) -> bool:
        """Return whether an image file is of this split."""
        return self.has(self.inventory.images(self.images).stem_of(image))


@dataclass(frozen=True)
class Format:
    """An annotation format: one module of this folder.

    Attributes:
        find: the data set in a folder; None if the folder has no labels of this format. Raises
            ValueError for labels that cannot be used, with what was looked for and found.
        read: the images of a split with their objects. Takes the labels, the classes or None for
            all in the labels, and the report. Raises ValueError, which names file and place.
    """

    name: str  # such as 'voc', for settings and the command line
    title: str  # such as 'Pascal VOC', for reports
    suffixes: tuple[str, ...]  # of its label files
    find: Callable[[Inventory], LabelFolder | None]
    read: Callable[[Split, Sequence[str] | None, Report], Read]
    kind: FileKind | None = None  # of its files, if each image has one
    # Of files of several images, which have keys as of others.
    shared: FileKind | None = None
    lists_classes: bool = True  # if not, classes.txt does


@dataclass(frozen=True)
class LabelFolder:
    """A recognised data set."""

    format: Format
    splits: Mapping[str, Split]  # 'train' and 'val'
    split_by: str  # in words: 'ImageSets (train.txt, ...)'
    classes: Sequence[str] | None = None  # in their order; None for all in the labels
    notes: tuple[str, ...] = ()  # lines for the report

    def known(self) -> object:
        """All that is known beside the splits."""
        return self.format.name, self.classes, self.split_by, self.notes
