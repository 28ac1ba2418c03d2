"""Label files, masks or depth maps and their images: found, matched, and read one by one."""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from pathlib import Path

from .file_matcher import FileMatcher
from .inventory import TWO_IMAGES, Images, Inventory
from .label_folder import Split
from .objects import Labelled, Report
from .places import FileKind, FilePairs, FilePlace, Places

LOOKED_AT = 5  # files that decide whether a folder has labels


def find_pairs(inventory: Inventory, kind: FileKind) -> FilePairs | None:
    """The files of a kind and their images in the data set of a folder; None without one of both.

    ValueError for several data sets, two files of one image, or files that are all broken.
    """
    root = inventory.root
    all_images = inventory.images(root)
    images = [*map(str, all_images.by_stem.values())]
    paths = inventory.paths(root, kind.suffixes)
    if kind.is_apart:
        apart = re.compile(rf'/(?:{kind.folders})/', re.I)
        above = len(str(root).rstrip('/'))
        paths = [path for path in paths if apart.search(path, above)]
    if not kind.is_map:
        paths = files_with_labels(paths, kind)
    if not paths or not images:
        return None
    home = home_of(paths, images, root, kind)
    inside = os.path.join(home, '')
    paths = [path for path in paths if path.startswith(inside)]
    places = Places(kind, home)
    groups = defaultdict(list)
    for path in images:
        if path.startswith(inside):
            of_labels = places.of(path).of_labels
            if of_labels and not kind.is_map:
                of_labels = False  # a word of labels tells only maps from images
            groups[of_labels].append(path)
    images = groups[False] or groups[None] or groups[True]
    pairs = pair_files(kind, home, images, paths)
    note_doubles(pairs, all_images)
    return pairs if pairs.files and pairs.images else None


def note_doubles(pairs: FilePairs, images: Images) -> None:
    """Note the images of which another of their name is taken."""
    for file, first in images.doubles:
        if str(first) in pairs.images and str(file) not in pairs.files:
            pairs.notes.append((TWO_IMAGES, f'{first.name} and {file.name}'))


def pair_files(
    kind: FileKind, home: Path, images: Iterable[str], files: Iterable[str]
) -> FilePairs:
    """Files of a kind in a data set, with their images; ValueError for two files of an image."""
    places = Places(kind, home)
    found = {path: places.of(path) for path in images}
    placed = {path: places.of(path) for path in files}
    if kind.negatives:
        # Not those in folders where no image may belong: runs/detect/predict/labels.
        of_images = {''}  # the folders of images, and those above
        for place in found.values():
            folder = os.path.dirname(place.key)
            while folder not in of_images:
                of_images.add(folder)
                folder = os.path.dirname(folder)
        for path, place in [*placed.items()]:
            is_elsewhere = os.path.dirname(place.key) not in of_images
            if is_elsewhere and place.of_labels is not None:
                del placed[path]
    return FileMatcher(FilePairs(kind, home, found, placed)).match()


def pairs_in(
    kind: FileKind, images: Path, files: Path, inventory: Inventory
) -> FilePairs:
    """The files of a kind in a folder, and their images in another or the same one."""
    all_images = map(str, inventory.images(images).by_stem.values())
    found = places_below(images, all_images, of_labels=None)
    paths = inventory.paths(files, kind.suffixes)
    placed = places_below(files, paths, of_labels=images != files or None)
    return FileMatcher(FilePairs(kind, images, found, placed, files)).match()


def places_below(
    folder: Path, paths: Iterable[str], of_labels: bool | None
) -> dict[str, FilePlace]:
    """The places of the files in a folder whose paths have no words of a layout."""
    start = len(os.path.join(folder, ''))
    places = {}
    for path in paths:
        key = os.path.splitext(path[start:])[0]
        places[path] = FilePlace('', key, str(folder), of_labels)
    return places


def files_with_labels(paths: Iterable[str], kind: FileKind) -> list[str]:
    """The files in folders that have labels, by the first of each; ValueError if all are broken."""
    groups = defaultdict(list)
    for path in paths:
        groups[os.path.dirname(path)].append(path)
    kept: list[str] = []
    problems: list[ValueError] = []
    broken = []
    read = 0
    for group in groups.values():
        first = group[:LOOKED_AT]
        before = len(problems)
        for path in first:
            try:
                if (kept and read >= LOOKED_AT) or kind.is_one(Path(path)):
                    kept += group
                    break
            except ValueError as problem:
                problems.append(problem)
            read += 1
        else:
            if len(problems) - before == len(first):
                broken += group  # the reader names the first
    if problems and not kept:
        raise problems[0]
    return kept + broken


def home_of(
    files: Iterable[str], images: Iterable[str], root: Path, kind: FileKind
) -> Path:
    """The highest folder above words of the layout that has images; ValueError for several."""
    start = len(os.path.join(root, ''))
    homes = set()
    for inner in {os.path.dirname(path)[start:] for path in files}:
        names = takewhile(lambda name: not kind.word(name), inner.split('/'))
        above = '/'.join(names)
        homes.add(above if above != inner else '')
    if '' in homes:
        return root
    least = min(home.count('/') for home in homes)
    with_images = []
    for home in sorted(homes):
        if home.count('/') > least:
            continue
        if any(path.startswith(f'{home}/', start) for path in images):
            with_images.append(root / home)
    if len(with_images) > 1:
        choices = ', '.join(map(str, with_images))
        raise ValueError(
            f'{root} has several {kind.title} data sets: set own.data_root to one of {choices}, or '
            'own.format=folders, which joins them'
        )
    return with_images[0] if with_images else root


def read_pairs(
    split: Split,
    kind: FileKind,
    report: Report,
    read: Callable[[Path, Path], Labelled | None],
    count: Callable[[Path], int | None],
) -> Iterator[Labelled]:
    """The images of a split with their objects; what lacks the other is counted.

    ``count`` is asked for the number of objects in a file without an image. Both functions return
    None for a file that is something else.
    """
    files = split.files
    file_of = {image: file for file, image in files.pairs.items()}
    negatives = files.unlabelled if kind.negatives else ()
    for image in sorted(file_of.keys() | negatives):
        item = read(file_of[image], image) if image in file_of else Labelled(image)
        if item is not None:
            yield item
    for note, place in files.notes:
        report.note(note, place)
    for file, why in files.orphans.items():
        number = count(file)
        if number:
            report.leave_out(why, file.name, number)
        elif number is not None and not kind.negatives:
            note = f'{kind.noun} of no image or of one that has another'
            report.note(note, file.name)
    outcome = 'no objects' if kind.negatives else 'not labelled, so left out'
    for image in files.unlabelled if files.pairs else ():
        report.note(f'image without {kind.what} ({outcome})', image.name)
    for name in files.absent:
        tell = report.leave_out if kind.negatives else report.note
        tell('listed image that is not there', name)
