"""Files that belong to an image each: label files, masks, depth maps.

Paths say which image it is. In 'ships/train/labels/cam 1/a.txt' and
'ships/images/train/cam 1/a.jpg' the words of the layout are `train`, `labels` and `images`; `ships`
before them is the folder of the data set, and what is left, 'cam 1/a', is the key of both.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from .inventory import Inventory
from .matching import FileMatcher, stem_without
from .objects import Labelled, Report, Split

SPLITS = {
    'train': ('train2017', 'train', 'training'),
    'val': ('val2017', 'val', 'valid', 'validation', 'test'),
}
SPLIT_NAMES = {*SPLITS['train'], *SPLITS['val']}
IMAGE_FOLDERS = 'images?|imgs?|jpe?gimages|pngimages|obj_data'
SPLIT = '|'.join(sorted(SPLIT_NAMES, key=len, reverse=True))
LOOKED_AT = 5  # files that decide whether a folder has labels


@dataclass(frozen=True)
class FileKind:
    """A kind of files that belong to an image each."""

    title: str  # of the format, for messages
    what: str  # one of its files, such as 'an XML file'
    suffixes: tuple[str, ...]
    folders: str  # names of folders of its files; this, ``images`` and words: regular expressions
    images: str = IMAGE_FOLDERS
    is_one: Callable[[Path], bool] = lambda path: (
        True
    )  # asked of few; ValueError for a broken file
    named: Callable[[Path], str | None] = lambda path: (
        None
    )  # the image by the content of a file
    is_apart: bool = False  # its files are in ``folders`` only
    is_map: bool = (
        False  # its files are images, told by folders and words, one for each image
    )
    negatives: bool = (
        False  # an image without a file has no objects, so it is in a split
    )
    lists: str | None = (
        None  # folder in ImageSets/ of the lists of splits; None without lists
    )
    words: tuple[
        str, ...
    ] = ()  # before or behind the name of the image, as in 'a_mask.png'
    others: tuple[
        str, ...
    ] = ()  # words of files that belong to the image and are something else
    image_words: tuple[str, ...] = ()  # of images beside 'a_mask.png'

    @property
    def noun(self) -> str:
        """One of its files, without an article."""
        return self.what.split(maxsplit=1)[1]

    @property
    def plural(self) -> str:
        """Its files in words."""
        return f'{self.noun}s' if self.is_map else 'labels'

    def word(self, name: str) -> tuple[str, bool | None] | None:
        """The split that a folder's name says, or '', and whether it is of labels; None for none.

        The name has words of a split, of images or of labels, or two of them in one. A name that
        says a split only is of labels or of images: None for this.
        """
        word = rf'(?P<labels>{self.folders})|(?P<images>{self.images})'
        layout = rf'(?P<first>{SPLIT})?[-_ ]?(?:{word})?[-_ ]?(?P<last>{SPLIT})?'
        found = re.fullmatch(rf'(?:obj_)?{layout}(?:_data)?', name, re.I)
        if not found or not any(found.groups()) or (found['first'] and found['last']):
            return None
        split = (found['first'] or found['last'] or '').lower()
        return split, bool(found['labels']) if found['labels'] or found[
            'images'
        ] else None


class FilePlace(NamedTuple):
    """The meaning of the path of a file."""

    split: str  # '' for none
    key: str  # the path without suffix and words of the layout
    top: str  # the folder down to the last of these words
    of_labels: bool | None  # whether the words say labels or images; None without words


class Places:
    """The places of files, by words in their paths below the folder of the data set."""

    def __init__(self, kind: FileKind, home: Path) -> None:
        self.kind, self.home = kind, os.path.join(home, '')
        self.of_folder: dict[str, FilePlace] = {}  # with the start of keys

    def of(self, path: str) -> FilePlace:
        """The place of a file."""
        folder, _, name = path.rpartition('/')
        if (found := self.of_folder.get(folder)) is None:
            start = self.home if f'{folder}/'.startswith(self.home) else ''
            parts = [part for part in f'{folder}/'[len(start) :].split('/') if part]
            split, inner, last, of_labels = '', '', 0, None
            for number, part in enumerate(parts, start=1):
                if word := self.kind.word(part):
                    split, last = split or word[0], number
                    of_labels = bool(of_labels) if word[1] is None else word[1]
                else:
                    inner += f'{part}/'
            top = (start + '/'.join(parts[:last])).rstrip('/') or '/'
            found = self.of_folder[folder] = FilePlace(split, inner, top, of_labels)
        key = found.key + os.path.splitext(name)[0]
        return FilePlace(found.split, key, found.top, found.of_labels)


@dataclass
class FilePairs:
    """Files of a kind and the images in a folder, with their places, matched."""

    kind: FileKind
    home: Path  # folder of the data set
    images: dict[str, FilePlace]
    files: dict[str, FilePlace]
    source: Path | None = None  # folder of the files, where there may be none
    image_of: dict[str, str] = field(default_factory=dict)  # by files
    orphans: dict[str, str] = field(
        default_factory=dict
    )  # the other files, and the reason
    notes: list[tuple[str, str]] = field(
        default_factory=list
    )  # (kind, place) for the report

    def split_of(self, path: str) -> str:
        """The name of the split of a file, or of its image."""
        image = self.image_of.get(path)
        return (self.images[image].split if image else '') or self.files[path].split


def find_pairs(inventory: Inventory, kind: FileKind) -> FilePairs | None:
    """The files of a kind and their images in the data set of a folder; None without one of both.

    ValueError for several data sets, two files of one image, or files that are all broken.
    """
    root = inventory.root
    start = len(os.path.join(root, ''))
    paths = inventory.paths(root, kind.suffixes)
    if kind.is_apart:
        apart = re.compile(kind.folders, re.I)
        paths = [
            p for p in paths if any(map(apart.fullmatch, p[start:].split('/')[:-1]))
        ]
    if not kind.is_map:
        paths = files_with_labels(paths, kind)
    images = [str(file) for _, file in inventory.images(root)]
    if not paths or not images:
        return None
    home = home_of(paths, images, root, kind)
    inside = os.path.join(home, '')
    paths = [path for path in paths if path.startswith(inside)]
    images = [path for path in images if path.startswith(inside)]
    places = Places(kind, home)
    of_labels = {path: places.of(path).of_labels for path in images}
    for wanted in (
        ((False,), (None,), (True,)) if kind.is_map else ((False, True), (None,))
    ):
        if some := [path for path in images if of_labels[path] in wanted]:
            images = some
            break
    pairs = pair_files(kind, home, images, paths)
    pairs.notes += [
        ('two images of one name (the first is taken)', f'{first.name} and {file.name}')
        for file, first in inventory.images(root).doubles
        if str(first) in pairs.images and str(file) not in pairs.files
    ]
    return pairs if pairs.files and pairs.images else None


def pair_files(
    kind: FileKind, home: Path, images: Iterable[str], files: Iterable[str]
) -> FilePairs:
    """Files of a kind in a data set, with their images; ValueError for two files of an image."""
    places = Places(kind, home)
    found = {path: places.of(path) for path in images}
    placed = {path: places.of(path) for path in files}
    if (
        kind.negatives
    ):  # not those in folders where no image may belong: runs/detect/predict/labels
        of_images = {''}  # the folders of images, and those above
        for one in found.values():
            folder = one.key
            while (folder := os.path.dirname(folder)) not in of_images:
                of_images.add(folder)
        placed = {
            path: one
            for path, one in placed.items()
            if one.of_labels is None or os.path.dirname(one.key) in of_images
        }
    return match_files(FilePairs(kind, home, found, placed))


def pairs_in(
    kind: FileKind, images: Path, files: Path, inventory: Inventory
) -> FilePairs:
    """The files of a kind in a folder, and their images in another or the same one."""

    def placed(
        folder: Path, paths: Iterable[str], of_labels: bool | None
    ) -> dict[str, FilePlace]:
        start = len(os.path.join(folder, ''))
        keys = {path: os.path.splitext(path[start:])[0] for path in paths}
        return {
            path: FilePlace('', key, str(folder), of_labels)
            for path, key in keys.items()
        }

    found = placed(images, (str(file) for _, file in inventory.images(images)), None)
    given = placed(
        files, inventory.paths(files, kind.suffixes), images != files or None
    )
    return match_files(FilePairs(kind, images, found, given, files))


def match_files(pairs: FilePairs) -> FilePairs:
    """Files of a kind with their images; maps, which are images, too, are told apart before.

    Maps are in folders of labels. Where there is none, they are beside the images: a_mask.png
    beside a.png, else a.png beside a.jpg, or files that are no images.
    """
    kind, images, files = pairs.kind, pairs.images, pairs.files
    if kind.is_map:
        maps = [path for path, one in files.items() if one.of_labels]
        if not maps:
            stem_of = {path: os.path.splitext(path)[0] for path in (*images, *files)}
            stems = {stem_of[path] for path in images}
            stems |= {stem_without(stem, kind.image_words) for stem in stems}
            short = {
                path: stem_without(stem_of[path], kind.words + kind.others)
                for path in files
            }
            maps = [
                p for p, stem in short.items() if stem != stem_of[p] and stem in stems
            ]
        if not maps:
            photographs = {
                stem_of[path] for path in images if not path.lower().endswith('.png')
            }
            pngs = {
                p
                for p in files
                if p.lower().endswith('.png') and stem_of[p] in photographs
            }
            maps = [path for path in files if path not in images or path in pngs]
        pairs.files = {path: files[path] for path in maps}
        pairs.images = {
            path: one for path, one in images.items() if path not in pairs.files
        }
    return FileMatcher(pairs).match()


def files_with_labels(paths: Iterable[str], kind: FileKind) -> list[str]:
    """The files in folders that have labels, by the first of each; ValueError if all are broken."""
    groups: dict[str, list[str]] = {}
    for path in paths:
        groups.setdefault(os.path.dirname(path), []).append(path)
    kept, broken, problems, read = list[str](), list[str](), list[ValueError](), 0
    for group in groups.values():
        before = len(problems)
        for path in group[:LOOKED_AT]:
            try:
                if (kept and read >= LOOKED_AT) or kind.is_one(Path(path)):
                    kept += group
                    break
            except ValueError as problem:
                problems.append(problem)
            read += 1
        else:
            if len(problems) - before == len(group[:LOOKED_AT]):
                broken += group  # the reader names the first
    if problems and not kept:
        raise problems[0]
    return kept + broken


def home_of(
    files: Iterable[str], images: Iterable[str], root: Path, kind: FileKind
) -> Path:
    """The highest folder above words of the layout that has images; ValueError for several."""
    start = len(os.path.join(root, ''))
    homes = set[str]()
    for inner in {os.path.dirname(path)[start:] for path in files}:
        above = '/'.join(takewhile(lambda part: not kind.word(part), inner.split('/')))
        homes.add(above if above != inner else '')
    if '' in homes:
        return root
    least = min(home.count('/') for home in homes)
    of_images = {os.path.dirname(path)[start:] + '/' for path in images}
    highest = [home for home in sorted(homes) if home.count('/') == least]
    have = [
        home for home in highest if any(x.startswith(f'{home}/') for x in of_images)
    ]
    if len(have) > 1:
        names = ', '.join(str(root / home) for home in have)
        raise ValueError(
            f'{root} has several {kind.title} data sets: set own.data_root to one of {names}'
        )
    return root.joinpath(*have)


def read_pairs(
    part: Split,
    kind: FileKind,
    report: Report,
    read: Callable[[Path, Path], Labelled | None],
    count: Callable[[Path], int | None],
) -> Iterator[Labelled]:
    """The images of a split with their objects; what lacks the other is counted.

    ``count`` is asked for the number of objects in a file without an image. Both functions return
    None for a file that is something else.
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
                f'{kind.noun} of no image or of one that has another', file.name
            )
    outcome = 'no objects' if kind.negatives else 'not labelled, so left out'
    for image in part.unlabelled if part.pairs else ():
        report.note(f'image without {kind.what} ({outcome})', image.name)
    for name in part.absent:
        tell = report.leave_out if kind.negatives else report.note
        tell('listed image that is not there', name)
