"""The YOLO data set in a folder: by a data.yaml, by darknet's obj.data, or by names of folders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from ..classes import CLASSES_FILE
from .dota import has_corners, object_lines
from .files import IMAGE_SUFFIXES, Images, numbered_lines, read_text, subfolders
from .objects import Labels, Report
from .splits import SPLIT_NAMES, SPLITS, Splits, in_folders
from .yolo_files import in_two, label_files, labels_of, matched
from .yolo_yaml import Found, declaration_in, declared, names_above, options_in

LOOKED_AT = 20  # label files that decide whether a folder has labels of YOLO
OF_DOTA = 'four corners and a class, as of DOTA: name the folder labelTxt'


def find_data_set(root: Path) -> Found | None:
    """The YOLO data set in a folder, or in one of the folders in it; None if there is none.

    Raises:
        ValueError: several data sets, or one that lacks names of classes, images or labels.
    """
    root = Path(os.path.abspath(root))
    if file := declaration_in(root):
        return declared(file, root)
    below = list(subfolders(root).values())
    found = [declared(file, root) for folder in below if (file := declaration_in(folder))]
    layouts = [splits for splits in [common_folders(root)] if splits]
    if not layouts and not found:
        layouts = [splits for folder in below if (splits := common_folders(folder))]
    found += [data_set for splits in layouts if (data_set := with_names(*splits, root))]
    if any(places_of(one) != places_of(found[0]) for one in found):
        places = ' and '.join(dict.fromkeys(str(one[0]['train'].images) for one in found))
        raise ValueError(
            f'{root} has several YOLO data sets, with {places}: leave one in own.data_root'
        )
    if layouts and not found:
        raise ValueError(
            f'{layouts[0][0]["train"].source} has YOLO labels, but names of the classes are '
            f'missing: write them to {root / CLASSES_FILE}, one a line in the order of their '
            'numbers, or add the data.yaml'
        )
    if not found:
        refuse_unplaced(root)
    return found[0] if found else None


def refuse_unplaced(root: Path) -> None:
    """Refuse label files whose images are not where YOLO has them, or whose lines are DOTA's."""
    for path in islice(label_files(root), LOOKED_AT):
        where, line = next(object_lines(path), ('', ''))
        if has_corners(line) and not is_yolo(line):
            raise ValueError(f'{path.with_name(where)}: {OF_DOTA}')
        if is_yolo(line) and ',' not in line:
            raise ValueError(
                f'{path} has labels as of YOLO, but none of its folders has their images: they are '
                'in images/ beside labels/, or beside the label files, or where a data.yaml in '
                'own.data_root says'
            )


def places_of(found: Found) -> dict[str, tuple[object, ...]]:
    """The place of the labels and images of each split."""
    return {split: (item.source, item.images, item.names) for split, item in found[0].items()}


def with_names(splits: dict[str, Labels], described: str, root: Path) -> Found | None:
    """The splits with the names of their classes and what a yaml says; None without names.

    Raises:
        ValueError: the splits have different names.
    """
    places = dict.fromkeys(p for labels in splits.values() for p in (labels.source, labels.images))
    found = [one for place in places if (one := names_above(place, root))]
    for file, names in found:
        if names != found[0][1]:
            raise ValueError(
                f'{found[0][0]} and {file} have different classes: one list has to fit the numbers '
                'in all label files'
            )
    if not found:
        return None
    options = options_in(found[0][0])
    parts = {split: replace(labels, options=options) for split, labels in splits.items()}
    return parts, described, found[0][1]


def common_folders(home: Path) -> Splits | None:
    """The splits in folders of the common names; None if they have no YOLO labels.

    Raises:
        ValueError: only one split has labels.
    """

    def find(name: str) -> Labels | None:
        places = (yolo_labels(place, home) for place in split_places(home, name))
        return next(filter(None, places), None)

    found = in_folders(find, [home, *image_folders(home)])
    if len(found) == len(SPLITS):
        return found, 'folder'
    if 'train' in found:
        return in_two(found['train'])
    for place in undivided(home):
        if labels := yolo_labels(place, home):
            check_undivided(labels)
            return in_two(labels)
    return None


def split_places(home: Path, name: str) -> Iterator[Path]:
    """Folders of images, and a list, that may be a split's, by its name."""
    folders = subfolders(home)
    for outer, inner in (('images', name), ('jpegimages', name), (name, 'images')):
        if outer in folders and (place := subfolders(folders[outer]).get(inner)):
            yield place
    for folder in (name, f'obj_{name}_data'):  # beside the labels; the second is CVAT's
        if folder in folders:
            yield folders[folder]
    listing = home / f'{name}.txt'
    if listing.is_file() and is_listing(listing):
        yield listing


def is_listing(path: Path) -> bool:
    """Return whether a text file has the path of an image in its first line."""
    first = next(iter(read_text(path).splitlines()), '')
    return first.strip().lower().endswith(IMAGE_SUFFIXES)


def undivided(home: Path) -> list[Path]:
    """Folders that may have the images of all splits."""
    has_images = any(name.lower().endswith(IMAGE_SUFFIXES) for name in os.listdir(home))
    return [*image_folders(home), *([home] if has_images else [])]


def image_folders(home: Path) -> list[Path]:
    """images/, or darknet's JPEGImages/."""
    folders = subfolders(home)
    return [folders[name] for name in ('images', 'jpegimages') if name in folders]


def yolo_labels(place: Path, root: Path) -> Labels | None:
    """The labels of the images in a folder or list; None if there are none of YOLO."""
    labels = labels_of([place], root, {})
    if labels is None or not (images := Images(labels, Report())).by_stem:
        return None
    found, _ = matched(labels, images, Report())
    files = (found[stem] for stem, _ in images.chosen() if stem in found)
    lines = (line for path in files for _, line in islice(numbered_lines(path), 1))
    return labels if any(map(is_yolo, islice(lines, LOOKED_AT))) else None


def is_yolo(line: str) -> bool:
    """Return whether a line is a class and numbers; also if they are not as they should be."""
    words = line.replace(',', ' ').split()
    return len(words) > 4 and all(word.lstrip('-')[:1] in set('0123456789.') for word in words)


def check_undivided(labels: Labels) -> None:
    """Refuse one folder of images or labels whose inner folders are splits, but do not fit."""
    for folder in dict.fromkeys([labels.images, labels.source]):
        if names := sorted(SPLIT_NAMES & subfolders(folder).keys()):
            raise ValueError(
                f'{folder} has {", ".join(names)}, but images in {labels.images} and labels in '
                f'{labels.source} are not in folders of the same names'
            )
