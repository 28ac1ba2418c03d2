"""Label files, masks or depth maps and their images: found, matched, and read one by one."""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from pathlib import Path

from .file_matcher import FileMatcher
from .inventory import Inventory
from .label_folder import Split
from .objects import Labelled, Report
from .places import FileKind, FilePairs, FilePlace, Places, stem_without

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
    groups = defaultdict[bool | None, list[str]](list)
    for path in images:
        if path.startswith(inside):
            of_labels = places.of(path).of_labels
            if of_labels and not kind.is_map:
                of_labels = False  # of images, no other kind has some among its files
            groups[of_labels].append(path)
    images = groups[False] or groups[None] or groups[True]
    pairs = pair_files(kind, home, images, paths)
    for file, first in all_images.doubles:
        if str(first) in pairs.images and str(file) not in pairs.files:
            note = 'two images of one name (the first is taken)'
            pairs.notes.append((note, f'{first.name} and {file.name}'))
    return pairs if pairs.files and pairs.images else None


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
    return match_files(FilePairs(kind, home, found, placed))


def pairs_in(
    kind: FileKind, images: Path, files: Path, inventory: Inventory
) -> FilePairs:
    """The files of a kind in a folder, and their images in another or the same one."""
    all_images = map(str, inventory.images(images).by_stem.values())
    found = places_below(images, all_images, of_labels=None)
    paths = inventory.paths(files, kind.suffixes)
    placed = places_below(files, paths, of_labels=images != files or None)
    return match_files(FilePairs(kind, images, found, placed, files))


def places_below(
    folder: Path, paths: Iterable[str], of_labels: bool | None
) -> dict[str, FilePlace]:
    """The places of the files in a folder whose paths have no words of a layout."""
    start = len(os.path.join(folder, ''))
    places = dict[str, FilePlace]()
    for path in paths:
        key = os.path.splitext(path[start:])[0]
        places[path] = FilePlace('', key, str(folder), of_labels)
    return places


def match_files(pairs: FilePairs) -> FilePairs:
    """Files of a kind with their images; maps, which are images, too, are told apart before."""
    if pairs.kind.is_map:
        maps = maps_among(pairs)
        pairs.files = {path: pairs.files[path] for path in maps}
        for path in maps:
            pairs.images.pop(path, None)
    return FileMatcher(pairs).match()


def maps_among(pairs: FilePairs) -> list[str]:
    """The maps of images: the files in folders of maps.

    Where there is none, they are beside the images: a_mask.png beside a.png, else a.png beside
    a.jpg, or files that are no images.
    """
    kind, images = pairs.kind, pairs.images
    maps = [path for path, place in pairs.files.items() if place.of_labels]
    if maps:
        return maps
    stems, photographs = set[str](), set[str]()
    for path in images:
        stem, suffix = os.path.splitext(path)
        stems |= {stem, stem_without(stem, kind.image_words)}
        if suffix.lower() != '.png':
            photographs.add(stem)
    others = list[str]()
    for path in pairs.files:
        stem, suffix = os.path.splitext(path)
        short = stem_without(stem, kind.words + kind.others)
        if short != stem and short in stems:
            maps.append(path)
        elif path not in images or (suffix.lower() == '.png' and stem in photographs):
            others.append(path)
    return maps or others


def files_with_labels(paths: Iterable[str], kind: FileKind) -> list[str]:
    """The files in folders that have labels, by the first of each; ValueError if all are broken."""
    groups = defaultdict[str, list[str]](list)
    for path in paths:
        groups[os.path.dirname(path)].append(path)
    kept, broken, problems, read = list[str](), list[str](), list[ValueError](), 0
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
    homes = set[str]()
    for inner in {os.path.dirname(path)[start:] for path in files}:
        above = '/'.join(takewhile(lambda name: not kind.word(name), inner.split('/')))
        homes.add(above if above != inner else '')
    if '' in homes:
        return root
    least = min(home.count('/') for home in homes)
    with_images = list[str]()
    for home in sorted(homes):
        if home.count('/') > least:
            continue
        if any(path.startswith(f'{home}/', start) for path in images):
            with_images.append(home)
    if len(with_images) > 1:
        names = ', '.join(str(root / home) for home in with_images)
        raise ValueError(
            f'{root} has several {kind.title} data sets: set own.data_root to one of {names}'
        )
    return root.joinpath(*with_images)


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
    split = part.files
    file_of = {image: file for file, image in split.pairs.items()}
    negatives = split.unlabelled if kind.negatives else ()
    for image in sorted(file_of.keys() | negatives):
        item = read(file_of[image], image) if image in file_of else Labelled(image)
        if item is not None:
            yield item
    for note, place in split.notes:
        report.note(note, place)
    for file, why in split.orphans.items():
        number = count(file)
        if number:
            report.leave_out(why, file.name, number)
        elif number is not None and not kind.negatives:
            note = f'{kind.noun} of no image or of one that has another'
            report.note(note, file.name)
    outcome = 'no objects' if kind.negatives else 'not labelled, so left out'
    for image in split.unlabelled if split.pairs else ():
        report.note(f'image without {kind.what} ({outcome})', image.name)
    for name in split.absent:
        tell = report.leave_out if kind.negatives else report.note
        tell('listed image that is not there', name)
