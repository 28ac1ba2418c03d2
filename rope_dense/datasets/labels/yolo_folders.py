"""The YOLO data set in a folder: by a data.yaml, by darknet's obj.data, or by names of folders."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from ..classes import CLASSES_FILE
from .dota import has_corners, object_lines
from .files import read_text
from .inventory import Inventory
from .objects import Format, LabelFolder, Part
from .pairs import LOOKED_AT, Pairs, Places, find_pairs, match
from .splits import BY_HASH, WORDS, Chosen, by_hash_of_pairs, listed_image, part_of, split_pairs
from .yolo import FILES, NO_LABELS, OF_DOTA, is_yolo, read_yolo
from .yolo_yaml import (
    check_lists,
    class_names_of,
    content_of,
    declaration_in,
    entries,
    key_points,
    located,
    names_above,
    options_in,
)

LABELS = {'images': 'labels', 'Images': 'Labels', 'IMAGES': 'LABELS', 'JPEGImages': 'labels'}


def find_yolo(inventory: Inventory) -> LabelFolder | None:
    """A data.yaml or obj.data with the splits; or folders of images, of labels, and classes.txt.

    Raises:
        ValueError: several data sets, or one that lacks names of classes, images or labels.
    """
    root = inventory.root
    if file := declaration_in(root, inventory):
        return declared(file, inventory)
    below = inventory.subfolders(root).values()
    files = [file for folder in below if (file := declaration_in(folder, inventory))]
    found = [declared(file, inventory) for file in files]
    pairs = find_pairs(inventory, FILES)
    if pairs and found:
        images = {*map(str, images_of(found[0]))}
        if rest := [image for image in pairs.image_of.values() if image not in images]:
            raise several(root, found[0].splits['train'].images, Path(rest[0]).parent)
    if len(found) > 1 and any(images_of(one) != images_of(found[0]) for one in found):
        raise several(root, *(one.splits['train'].images for one in found))
    if found:
        return found[0]
    if pairs is None or not pairs.image_of:
        refuse_unplaced(inventory)
        return None
    return undeclared(pairs, inventory)


def several(root: Path, *places: Path) -> ValueError:
    """The error of several data sets."""
    names = ' and '.join(map(str, dict.fromkeys(places)))
    return ValueError(
        f'{root} has several YOLO data sets, with {names}: leave one in own.data_root'
    )


def images_of(folder: LabelFolder) -> list[Path]:
    """The images of both splits."""
    parts = folder.splits.values()
    return [image for part in parts for image in (*part.pairs.values(), *part.unlabelled)]


def undeclared(pairs: Pairs, inventory: Inventory) -> LabelFolder:
    """A data set by the names of its folders.

    Raises:
        ValueError: names of classes are missing, or differ.
    """
    parts, by = split_pairs(pairs, inventory)
    places = dict.fromkeys(x for part in parts.values() for x in (part.source, part.images))
    found = [one for place in places if (one := names_above(place, inventory))]
    for file, names in found:
        if names != found[0][1]:
            raise ValueError(
                f'{found[0][0]} and {file} have different classes: one list has to fit the numbers '
                'in all label files'
            )
    if not found:
        raise ValueError(
            f'{parts["train"].source} has YOLO labels, but names of the classes are missing: write '
            f'them to {inventory.root / CLASSES_FILE}, one a line in the order of their numbers, '
            'or add the data.yaml'
        )
    options = options_in(found[0][0])
    parts = {split: replace(part, options=options) for split, part in parts.items()}
    return LabelFolder(YOLO, parts, by, found[0][1])


def declared(file: Path, inventory: Inventory) -> LabelFolder:
    """The data set that a file declares; a part of its images is for validation if it has no `val`.

    Raises:
        ValueError: it lacks what is needed; the message has the file.
    """
    content, root = content_of(file), inventory.root
    given = {split: entries(content, split) for split in WORDS}
    if not given['train']:
        raise ValueError(f'{file} has no `train`: write the folder of the training images')
    options = key_points(file, content)
    places = {s: [located(x, content, file, root) for x in items] for s, items in given.items()}
    entered = [list(map(os.path.normpath, items)) for items in given.values()]
    if places['train'] == places['val'] and entered[0] != entered[1]:
        raise ValueError(
            f'{file}: {given["train"][0]!r} and {given["val"][0]!r} are both found in '
            f'{places["train"][0]}: is a folder missing?'
        )
    sets = {split: image_set(items, inventory) for split, items in places.items() if items}
    pairs = match(
        FILES,
        root,
        [i for one in sets.values() for i in one.images],
        label_files(sets.values(), inventory),
    )
    chosen = {split: one.chosen(pairs) for split, one in sets.items()}
    for split, one in sets.items():
        if not one.has_labels(pairs):
            folder = label_folder(str(places[split][0]))
            raise ValueError(
                f'{file}: no label files (.txt) for the {WORDS[split]} images in '
                f'{given[split][0]}: looked in {folder} and beside the images'
            )
    described = str(file.relative_to(root))
    if 'val' not in sets:
        chosen = by_hash_of_pairs(pairs, inventory, chosen['train'][0])
        described += f', which has no `val`, and {BY_HASH}'
    parts = {}
    for split, some in chosen.items():
        part = part_of(pairs, inventory, *some)
        images = sets.get(split, sets['train']).folder(part)
        parts[split] = replace(part, images=images, options=options)
    names = class_names_of(content, file, inventory)
    if file.suffix.lower() != '.data':
        check_lists(file, names, [part.source for part in parts.values()], inventory)
    outside = [part.images for part in parts.values() if not part.images.is_relative_to(root)]
    if outside:
        described = described.replace(file.name, f'{file.name} (images in {outside[0]})')
    parts['train'] = replace(parts['train'], notes=tuple(pairs.notes))
    return LabelFolder(YOLO, parts, described, names)


@dataclass
class ImageSet:
    """The images of a split that a file declares.

    Attributes:
        folders: that are declared, or have listed images.
        images: paths of files.
        is_listed: whether a list says them.
        absent: listed images that are not there.
    """

    folders: list[str]
    images: list[str]
    is_listed: bool
    absent: list[str]

    @property
    def label_folders(self) -> tuple[str, ...]:
        """The folders that may have label files of the images, with a slash."""
        labels = (place for folder in self.folders for place in (label_folder(folder), folder))
        return tuple(f'{place}/' for place in labels)

    def has_labels(self, pairs: Pairs) -> bool:
        """Return whether there is a label file for the images, also one of all splits."""
        above = {os.path.dirname(label_folder(folder)) for folder in self.folders}
        return any(
            path.startswith(self.label_folders) or os.path.dirname(path) in above
            for path in pairs.files
        )

    def folder(self, part: Part) -> Path:
        """The folder of the images."""
        return Path(os.path.commonpath(self.folders or [str(part.images)]))

    def chosen(self, pairs: Pairs) -> Chosen:
        """The label files and images of the split; of a list those that it names."""
        images = {*self.images}
        files = [path for path, image in pairs.image_of.items() if image in images]
        places = Places(FILES, pairs.home)
        absent = dict.fromkeys(places.of(f'{pairs.home}/{name}.').key for name in self.absent)
        for path in pairs.orphans:
            if self.is_listed and (key := pairs.files[path].key) in absent:
                files.append(path)
                del absent[key]
            elif not self.is_listed and path.startswith(self.label_folders):
                files.append(path)
        return files, self.images, [*absent]


def image_set(places: Iterable[Path], inventory: Inventory) -> ImageSet:
    """The images in folders and in lists.

    Raises:
        ValueError: a list of which no image is there.
    """
    found = ImageSet([], [], False, [])
    for place in places:
        if str(place) in inventory.folders or place.is_dir():
            found.folders.append(str(place))
            found.images += [str(file) for _, file in inventory.images(place)]
            continue
        found.is_listed = True
        home = inventory.root if inventory.root in place.parents else place.parent
        images = inventory.images(home)
        lines = [line for line in map(str.strip, read_text(place).splitlines()) if line]
        there = {line: listed_image(line, images) for line in lines}
        listed = [str(file) for file in there.values() if file is not None]
        if not listed:
            raise ValueError(
                f'{place}: none of its {len(lines)} images{"".join(f", {x}," for x in lines[:1])} '
                f'is in {home}, which has {len(images.by_stem)} images'
            )
        found.images += listed
        found.folders += dict.fromkeys(map(os.path.dirname, listed))
        found.absent += [
            os.path.splitext(x.replace('\\', '/'))[0] for x, file in there.items() if file is None
        ]
    return found


def label_files(sets: Iterable[ImageSet], inventory: Inventory) -> list[str]:
    """The text files that may have labels of images: in folders like theirs, beside them, above."""
    places = dict[str, None]()
    for folder in (folder for one in sets for folder in one.folders):
        labels = label_folder(folder)
        places |= dict.fromkeys((labels, folder))
        while labels != folder and os.path.basename(labels) not in LABELS.values():
            labels, folder = os.path.dirname(labels), os.path.dirname(folder)
            places[labels] = None
    files = [path for place in places for path in inventory.paths(Path(place), ('.txt',))]
    start = len(str(inventory.root))
    return [path for path in dict.fromkeys(files) if not NO_LABELS.search(path[start:])]


def label_folder(images: str) -> str:
    """The folder of labels for a folder of images: the last `images` of its path is `labels`."""
    parts = images.split('/')
    for place in reversed(range(len(parts))):
        if parts[place] in LABELS:
            return '/'.join([*parts[:place], LABELS[parts[place]], *parts[place + 1 :]])
    return images


def refuse_unplaced(inventory: Inventory) -> None:
    """Refuse label files whose images are not where YOLO has them, or whose lines are DOTA's."""
    root = inventory.root
    texts = [
        path
        for path in inventory.below(root, ('.txt',))
        if not NO_LABELS.search(str(path)[len(str(root)) :])
    ]
    for path in islice(texts, 4 * LOOKED_AT):
        where, line = next(object_lines(path), ('', ''))
        if has_corners(line) and not is_yolo(line):
            raise ValueError(f'{path.with_name(where)}: {OF_DOTA}')
        if is_yolo(line) and ',' not in line:
            raise ValueError(
                f'{path} has labels as of YOLO, but none of its folders has their images: they are '
                'in images/ beside labels/, or beside the label files, or where a data.yaml in '
                'own.data_root says'
            )


YOLO = Format('yolo', 'YOLO', ('.txt',), find_yolo, read_yolo, FILES)
