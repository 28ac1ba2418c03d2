"""Files that belong to an image each: label files, masks, depth maps.

Paths say which image it is. In 'ships/train/labels/cam 1/a.txt' and
'ships/images/train/cam 1/a.jpg' the words of the layout are `train`, `labels` and `images`; `ships`
before them is the folder of the data set, and what is left, 'cam 1/a', is the key of both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from .inventory import Inventory
from .matching import Matcher, without
from .objects import Labelled, Part, Report

SPLITS = {
    'train': ('train2017', 'train', 'training'),
    'val': ('val2017', 'val', 'valid', 'validation', 'test'),
}
SPLIT_NAMES = {*SPLITS['train'], *SPLITS['val']}
IMAGE_FOLDERS = 'images?|imgs?|jpe?gimages|pngimages|obj_data'
SPLIT = '|'.join(sorted(SPLIT_NAMES, key=len, reverse=True))
LOOKED_AT = 5  # files that decide whether a folder has labels


@dataclass(frozen=True)
class Kind:
    """A kind of files that belong to an image each.

    Attributes:
        title: of the format, for messages.
        what: one of its files, such as 'an XML file'.
        suffixes: of its files.
        folders, images: names of folders of its files and of images, regular expressions.
        is_one: whether a file is one; ValueError if it is broken. Asked of few files of a folder.
        named: the path of the image that a file names; None for none.
        is_apart: its files are in folders of these names only.
        is_map: its files are images, too, told by their folders and by the words of their names;
            an image has one of them only.
        negatives: an image without a file has no objects, so it is in a split.
        lists: folder of lists of the splits, in ImageSets/; None if there are no such lists.
        words: regular expressions before or behind the name of the image, as in 'a_mask.png'.
        others: words of files that belong to the image and are something else.
        image_words: words of images beside 'a_mask.png'.
    """

    title: str
    what: str
    suffixes: tuple[str, ...]
    folders: str
    images: str = IMAGE_FOLDERS
    is_one: Callable[[Path], bool] = lambda path: True
    named: Callable[[Path], str | None] = lambda path: None
    is_apart: bool = False
    is_map: bool = False
    negatives: bool = False
    lists: str | None = None
    words: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    image_words: tuple[str, ...] = ()

    @property
    def noun(self) -> str:
        """One of its files, without an article."""
        return self.what.split(maxsplit=1)[1]

    @property
    def plural(self) -> str:
        """Its files in words."""
        return f'{self.noun}s' if self.is_map else 'labels'

    @cached_property
    def layout(self) -> re.Pattern[str]:
        """A word of the layout: of a split, of images, of labels, or two of them in one."""
        word = rf'(?P<labels>{self.folders})|(?P<images>{self.images})'
        return re.compile(
            rf'(?:obj_)?(?P<first>{SPLIT})?[-_ ]?(?:{word})?[-_ ]?(?P<last>{SPLIT})?(?:_data)?',
            re.I,
        )

    def word(self, name: str) -> tuple[str, bool | None] | None:
        """The split that a folder's name says, or '', and whether it is of labels; None for none.

        A name that says a split only is of labels or of images: None for this.
        """
        found = self.layout.fullmatch(name)
        if not found or not any(found.groups()) or (found['first'] and found['last']):
            return None
        split = (found['first'] or found['last'] or '').lower()
        return split, None if not (found['labels'] or found['images']) else bool(found['labels'])


class Place(NamedTuple):
    """What the path of a file says.

    Attributes:
        split: name of its split; '' for none.
        key: path without suffix and words of the layout.
        top: folder down to the last of these words.
        of_labels: whether the words say labels (True) or images (False); None without words.
    """

    split: str
    key: str
    top: str
    of_labels: bool | None


class Places:
    """The places of files, by the words in their paths.

    Args:
        home: folder of the data set, whose own path has no words.
    """

    def __init__(self, kind: Kind, home: Path) -> None:
        self.kind, self.home = kind, os.path.join(home, '')
        self.known: dict[str, tuple[str, str, str, bool | None]] = {}

    def of(self, path: str) -> Place:
        """The place of a file."""
        folder, _, name = path.rpartition('/')
        if (found := self.known.get(folder)) is None:
            found = self.known[folder] = self.of_folder(folder)
        split, inner, top, of_labels = found
        return Place(split, f'{inner}{os.path.splitext(name)[0]}', top, of_labels)

    def of_folder(self, folder: str) -> tuple[str, str, str, bool | None]:
        """Split, start of keys, top and kind of the files in a folder."""
        start = self.home if f'{folder}/'.startswith(self.home) else ''
        parts = [part for part in f'{folder}/'[len(start) :].split('/') if part]
        words = [self.kind.word(part) for part in parts]
        split = next((word[0] for word in words if word and word[0]), '')
        rest = ''.join(f'{p}/' for p, word in zip(parts, words, strict=True) if word is None)
        last = max((n for n, word in enumerate(words, 1) if word), default=0)
        top = start + '/'.join(parts[:last])
        said = [word[1] for word in words if word and word[1] is not None]
        of_labels = said[-1] if said else (False if last else None)
        return split, rest, top.rstrip('/') or '/', of_labels


@dataclass
class Pairs:
    """Files of a kind and the images in a folder, matched.

    Attributes:
        home: folder of the data set.
        images, files: place of each, by paths.
        source: folder of the files, where there may be none.
        image_of: the image of each file that has one.
        orphans: the other files, and the reason.
        notes: (kind, place) of what the report shall say.
    """

    kind: Kind
    home: Path
    images: dict[str, Place]
    files: dict[str, Place]
    source: Path | None = None
    image_of: dict[str, str] = field(default_factory=dict)
    orphans: dict[str, str] = field(default_factory=dict)
    notes: list[tuple[str, str]] = field(default_factory=list)

    def split_of(self, path: str) -> str:
        """The name of the split of a file, or of its image."""
        image = self.image_of.get(path)
        return (self.images[image].split if image else '') or self.files[path].split


def find_pairs(inventory: Inventory, kind: Kind) -> Pairs | None:
    """The files of a kind and their images in the data set of a folder; None without one of both.

    Raises:
        ValueError: several data sets, two files of one image, or files that are all broken.
    """
    root = inventory.root
    start = len(os.path.join(root, ''))
    paths = inventory.paths(root, kind.suffixes)
    if kind.is_apart:
        apart = re.compile(kind.folders, re.I)
        paths = [p for p in paths if any(map(apart.fullmatch, p[start:].split('/')[:-1]))]
    if not kind.is_map:
        paths = recognised(paths, kind)
    images = [str(file) for _, file in inventory.images(root)]
    if not paths or not images:
        return None
    home = home_of(paths, images, root, kind)
    inside = os.path.join(home, '')
    paths = [path for path in paths if path.startswith(inside)]
    images = [path for path in images if path.startswith(inside)]
    places = Places(kind, home)
    of_labels = {path: places.of(path).of_labels for path in images}
    if kind.is_map:
        rest = [path for path in images if of_labels[path] is None]
        maps = [path for path in images if of_labels[path]]
        images = [path for path in images if of_labels[path] is False] or rest or maps
    else:
        images = [path for path in images if of_labels[path] is not None] or images
    pairs = match(kind, home, images, paths)
    pairs.notes += [
        ('two images of one name (the first is taken)', f'{first.name} and {file.name}')
        for file, first in inventory.images(root).doubles
        if str(first) in pairs.images and str(file) not in pairs.files
    ]
    return pairs if pairs.files and pairs.images else None


def match(kind: Kind, home: Path, images: Iterable[str], files: Iterable[str]) -> Pairs:
    """Files of a kind with the images that they belong to.

    Args:
        home: folder of the data set, whose own path has no words.

    Raises:
        ValueError: two files of one image, or several images for a file.
    """
    places = Places(kind, home)
    placed = {path: places.of(path) for path in files}
    if kind.is_map:
        placed, images = told_apart(placed, images, places)
    found = {path: places.of(path) for path in images}
    pairs = Pairs(kind, home, found, of_this_set(placed, found, kind))
    Matcher(pairs).match()
    return pairs


def pairs_in(kind: Kind, images: Path, files: Path, inventory: Inventory) -> Pairs:
    """The files of a kind in a folder, and their images in another or the same one."""

    def placed(folder: Path, paths: Iterable[str]) -> dict[str, Place]:
        start = len(os.path.join(folder, ''))
        return {x: Place('', os.path.splitext(x[start:])[0], str(folder), None) for x in paths}

    found = placed(images, (str(file) for _, file in inventory.images(images)))
    given = placed(files, inventory.paths(files, kind.suffixes))
    if kind.is_map and images == files:
        given, rest = told_apart(given, found, Places(kind, images))
        found = {path: found[path] for path in rest}
    elif kind.is_map:
        found = {path: one for path, one in found.items() if path not in given}
    pairs = Pairs(kind, images, found, given, files)
    Matcher(pairs).match()
    return pairs


def recognised(paths: Iterable[str], kind: Kind) -> list[str]:
    """The files in folders that have labels, by the first of each; ValueError if all are broken."""
    groups: dict[str, list[str]] = {}
    for path in paths:
        groups.setdefault(os.path.dirname(path), []).append(path)
    kept, problems, read = list[str](), list[ValueError](), 0
    for group in groups.values():
        for path in group[:LOOKED_AT]:
            try:
                if (kept and read >= LOOKED_AT) or kind.is_one(Path(path)):
                    kept += group
                    break
            except ValueError as problem:
                problems.append(problem)
            read += 1
    if problems and not kept:
        raise problems[0]
    return kept


def home_of(files: Iterable[str], images: Iterable[str], root: Path, kind: Kind) -> Path:
    """The highest folder above words of the layout that has images; ValueError for several."""
    start = len(os.path.join(root, ''))
    homes: set[tuple[str, ...]] = set()
    for folder in {os.path.dirname(path) for path in files}:
        parts = tuple(part for part in folder[start:].split('/') if part)
        first = next((n for n, part in enumerate(parts) if kind.word(part)), None)
        homes.add(() if first is None else parts[:first])
    with_images = {os.path.dirname(path)[start:] + '/' for path in images}
    least = min(map(len, homes))
    found = sorted('/'.join(home) for home in homes if len(home) == least)
    have = [home for home in found if any(p.startswith(f'{home}/') for p in with_images)]
    if least and not have:
        return root
    if len(have) > 1:
        names = ', '.join(str(root / home) for home in have)
        raise ValueError(
            f'{root} has several {kind.title} data sets: set own.data_root to one of {names}'
        )
    return root / have[0] if least else root


def of_this_set(
    files: Mapping[str, Place], images: Mapping[str, Place], kind: Kind
) -> dict[str, Place]:
    """Files without those of another data set: in folders of labels where no image may belong.

    Such as runs/detect/predict/labels: in folders that have no image and are above no image's.
    """
    inner = {os.path.dirname(one.key) for one in images.values()}
    return {
        path: one
        for path, one in files.items()
        if not kind.negatives
        or one.of_labels is None
        or (folder := os.path.dirname(one.key)) in inner
        or any(name.startswith(f'{folder}/') for name in inner)
        or not folder
    }


def told_apart(
    files: Mapping[str, Place], images: Iterable[str], places: Places
) -> tuple[dict[str, Place], list[str]]:
    """Maps and images where both are images.

    Maps are in folders of their names. Where there is none, they are beside the images: a_mask.png
    beside a.png, else a.png beside a.jpg, or files that are no images.
    """
    kind = places.kind
    maps = {path: one for path, one in files.items() if one.of_labels}
    rest = [path for path in images if path not in maps]
    if maps:
        return maps, rest
    stems = {os.path.splitext(path)[0] for path in rest}
    stems |= {without(stem, kind.image_words) for stem in stems}
    named = {
        path: one
        for path, one in files.items()
        if (stem := os.path.splitext(path)[0]) != (key := without(stem, kind.words + kind.others))
        and key in stems
    }
    photographs = {os.path.splitext(path)[0] for path in rest if not path.lower().endswith('.png')}
    beside = named or {
        path: one
        for path, one in files.items()
        if path not in rest
        or (path.lower().endswith('.png') and os.path.splitext(path)[0] in photographs)
    }
    return beside, [path for path in rest if path not in beside]


def read_pairs(
    part: Part,
    kind: Kind,
    report: Report,
    read: Callable[[Path, Path], Labelled | None],
    count: Callable[[Path], int | None],
) -> Iterator[Labelled]:
    """The images of a split with their objects; what lacks the other is counted.

    Args:
        read: the image of a file with its objects; None for a file that is something else.
        count: number of objects in a file without an image; None for a file that is something else.
    """
    files = {image: file for file, image in part.pairs.items()}
    negatives = part.unlabelled if kind.negatives else ()
    for image in sorted({*files, *negatives}):
        if (file := files.get(image)) is None:
            yield Labelled(image)
        elif (item := read(file, image)) is not None:
            yield item
    for note, place in part.notes:
        report.note(note, place)
    for file, why in part.orphans.items():
        if number := count(file):
            report.leave_out(why, file.name, number)
        elif number is not None and not kind.negatives:
            report.note(
                f'{kind.what.split(maxsplit=1)[1]} of no image or of one that has another',
                file.name,
            )
    outcome = 'no objects' if kind.negatives else 'not labelled, so left out'
    for image in part.unlabelled if part.pairs else ():
        report.note(f'image without {kind.what} ({outcome})', image.name)
    for name in part.absent:
        if kind.negatives:
            report.leave_out('listed image that is not there', name)
        else:
            report.note('listed image that is not there', name)
