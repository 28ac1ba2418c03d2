"""The YOLO data set in a folder: by a data.yaml, by darknet's obj.data, or by names of folders."""

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from ..classes import CLASSES_FILE
from .dota import has_corners, read_object_lines
from .files import read_text
from .inventory import Inventory
from .label_folder import Format, LabelFolder
from .pairs import LOOKED_AT, find_pairs, note_doubles, pair_files
from .places import SPLITS, FilePairs, Places
from .splits import (
    BY_HASH,
    WORDS,
    Chosen,
    listed_image,
    make_split,
    split_files,
    split_pairs_by_hash,
)
from .yolo import FILES, NO_LABELS, OF_DOTA, is_yolo, read_yolo
from .yolo_yaml import (
    class_names_of,
    find_declaration,
    find_folder,
    key_points,
    read_names_above,
    split_entries,
)

LABELS = {
    'images': 'labels',
    'Images': 'Labels',
    'IMAGES': 'LABELS',
    'JPEGImages': 'labels',
}
LAST_IMAGES = re.compile(rf'(.*/)({"|".join(LABELS)})(?=/|\Z)', re.S)


def find_yolo(inventory: Inventory) -> LabelFolder | None:
    """A data.yaml or obj.data with the splits; or folders of images, of labels, and classes.txt.

    ValueError for several data sets, or one that lacks names of classes, images or labels.
    """
    root = inventory.root
    declaration = find_declaration(root, inventory)
    if declaration:
        return declared_folder(*declaration, inventory)
    found = []
    homes = {}  # by images
    for folder in inventory.subfolders(root).values():
        declaration = find_declaration(folder, inventory)
        if declaration:
            one = declared_folder(*declaration, inventory)
            found.append(one)
            images = set[Path]()
            for part in one.splits.values():
                images.update(part.files.pairs.values(), part.files.unlabelled)
            homes[frozenset(map(str, images))] = one.splits['train'].images
    pairs = find_pairs(inventory, FILES)
    if pairs and homes:
        rest = {*pairs.image_of.values()}.difference(*homes)
        if rest:
            homes[frozenset(rest)] = Path(min(rest)).parent
    if len(homes) > 1:
        names = ' and '.join(map(str, homes.values()))
        raise ValueError(
            f'{root} has several YOLO data sets, with {names}: leave one in it'
        )
    if found:
        return found[0]
    if pairs is not None and pairs.image_of:
        return undeclared_folder(pairs, inventory)
    refuse_unplaced(inventory)
    return None


def undeclared_folder(pairs: FilePairs, inventory: Inventory) -> LabelFolder:
    """A data set by the names of its folders; ValueError without one list of classes."""
    parts, by = split_files(pairs, inventory)
    places = dict[Path, None]()
    for part in parts.values():
        places |= dict.fromkeys((part.source, part.images))
    found = read_names_above(places, inventory)
    if found is None:
        raise ValueError(
            f'{parts["train"].source} has YOLO labels, but names of the classes are missing: write '
            f'them to {inventory.root / CLASSES_FILE}, one a line in the order of their numbers, '
            'or add the data.yaml'
        )
    names, options = found
    for split, part in parts.items():
        parts[split] = replace(part, options=options)
    return LabelFolder(YOLO, parts, by, names)


def declared_folder(
    file: Path,
    content: dict[str, Any],
    inventory: Inventory,
) -> LabelFolder:
    """The data set that a file declares; without `val` a part of its images is for validation."""
    root = inventory.root
    described = str(file.relative_to(root))
    hides = inventory.hides
    if hides:
        shown = content.items()
        content = {key: value for key, value in shown if not hides.search(key)}
        described += ' (test)'
    if inventory.asked:
        content = with_images(file, content, root)
    given = {split: split_entries(content, split) for split in WORDS}
    if inventory.asked and not given['train']:  # the only split is both
        given['train'] = given['val']
    if not given['train']:
        raise ValueError(
            f'{file} has no `train`: write the folder of the training images'
        )
    options = key_points(file, content)
    places = {}
    for split, entries in given.items():
        places[split] = [find_folder(entry, content, file, root) for entry in entries]
    train, val = [[*map(os.path.normpath, entries)] for entries in given.values()]
    if places['train'] == places['val'] and train != val:
        raise ValueError(
            f'{file}: {given["train"][0]!r} and {given["val"][0]!r} are both found in '
            f'{places["train"][0]}: is a folder missing?'
        )
    sets = {}
    folders = []
    images = []
    for split, some in places.items():
        if some:
            one = ImageSet(some, inventory)
            sets[split] = one
            folders += one.folders
            images += one.images
    pairs = pair_files(FILES, root, images, candidate_files(folders, inventory))
    for place in filter(Path.is_dir, dict.fromkeys(chain(*places.values()))):
        note_doubles(pairs, inventory.images(place))
    chosen = {}
    for split, one in sets.items():
        found = one.chosen(pairs)
        if found is None:
            raise ValueError(
                f'{file}: no label files (.txt) for the {WORDS[split]} images in {given[split][0]}'
                f': looked in {label_folder(str(places[split][0]))} and beside the images'
            )
        chosen[split] = found
    outside = [folder for folder in folders if not Path(folder).is_relative_to(root)]
    if outside:
        described += f' (images in {outside[0]})'
    if 'val' not in sets:
        chosen = split_pairs_by_hash(pairs, inventory, chosen['train'].files)
        described += f', which has no `val`, and {BY_HASH}'
    parts = {}
    for split, found in chosen.items():
        common = Path(os.path.commonpath(sets.get(split, sets['train']).folders))
        notes = tuple(pairs.notes) if split == 'train' else ()
        part = make_split(pairs, inventory, found, notes)
        parts[split] = replace(part, images=common, options=options)
    sources = [part.source for part in parts.values()]
    names = class_names_of(content, file, sources, inventory)
    return LabelFolder(YOLO, parts, described, names)


def with_images(file: Path, content: dict[str, Any], root: Path) -> dict[str, Any]:
    """What a file declares, without the splits whose images are not there."""
    there = dict(content)
    for split, names in SPLITS.items():
        for name in names:
            entries = split_entries({name: content.get(name)}, split)
            try:
                for entry in entries:
                    find_folder(entry, content, file, root)
            except ValueError:
                del there[name]
    return there


class ImageSet:
    """The images of a split in folders and lists; ValueError for a list without an image."""

    def __init__(self, places: Iterable[Path], inventory: Inventory) -> None:
        self.images = list[str]()
        self.folders = list[str]()  # declared, or of listed images
        # Listed images that are not there; None without list.
        self.absent: list[str] | None = None
        known = inventory.images(inventory.root)
        for place in places:
            if place.is_dir():
                self.folders.append(str(place))
                self.images += map(str, inventory.images(place).by_stem.values())
                continue
            lines = [*filter(None, map(str.strip, read_text(place).splitlines()))]
            listed = []
            self.absent = self.absent or []
            for line in lines:
                # Perhaps of another folder.
                exact = Path(os.path.normpath(place.parent / line))
                is_image = exact.suffix.lower() in inventory.image_suffixes
                is_there = is_image and exact.is_file()
                image = exact if is_there else listed_image(line, known)
                if image:
                    listed.append(str(image))
                else:
                    self.absent.append(os.path.splitext(line.replace('\\', '/'))[0])
            if not listed:
                is_own = lines and place.is_relative_to(inventory.root)
                example = f', {lines[0]},' if is_own else ''  # no text from elsewhere
                raise ValueError(
                    f'{place}: none of its {len(lines)} images{example} is in {inventory.root}, '
                    f'which has {len(known.by_stem)} images'
                )
            self.images += listed
            self.folders += dict.fromkeys(map(os.path.dirname, listed))

    def chosen(self, pairs: FilePairs) -> Chosen | None:
        """The label files and images; of a list those that it names. None without a label file."""
        labels = {*map(label_folder, self.folders)}
        above = {*map(os.path.dirname, labels)}
        starts = tuple(f'{place}/' for place in labels.union(self.folders))
        for path in pairs.files:
            if path.startswith(starts) or os.path.dirname(path) in above:
                break
        else:
            return None
        images = {*self.images}
        places = Places(FILES, pairs.home)
        absent = {places.of(f'{pairs.home}/{name}.').key for name in self.absent or ()}
        files = [path for path, image in pairs.image_of.items() if image in images]
        for path in pairs.orphans:
            is_own = path.startswith(starts)
            if self.absent is not None:
                is_own = pairs.files[path].key in absent
            if is_own:
                files.append(path)
        absent -= {pairs.files[path].key for path in files}
        return Chosen(files, self.images, absent)


def candidate_files(folders: Iterable[str], inventory: Inventory) -> list[str]:
    """The text files that may have labels of images: in folders like theirs, beside them, above."""
    places = dict[str, None]()
    for folder in folders:
        labels = label_folder(folder)
        places |= dict.fromkeys((labels, folder))
        while labels != folder and os.path.basename(labels) not in LABELS.values():
            labels = os.path.dirname(labels)
            folder = os.path.dirname(folder)
            places[labels] = None
    return texts_in(places, inventory)


def label_folder(images: str) -> str:
    """The folder of labels for a folder of images: the last `images` of its path is `labels`."""
    return LAST_IMAGES.sub(lambda found: f'{found[1]}{LABELS[found[2]]}', images, 1)


def texts_in(folders: Iterable[str], inventory: Inventory) -> list[str]:
    """The text files in folders and below them that may have labels, by their names."""
    files = dict[str, None]()
    for folder in folders:
        files |= dict.fromkeys(inventory.paths(Path(folder), ('.txt',)))
    start = len(str(inventory.root))
    return [path for path in files if not NO_LABELS.search(path[start:])]


def refuse_unplaced(inventory: Inventory) -> None:
    """Refuse label files whose images are not where YOLO has them, or whose lines are DOTA's."""
    root = inventory.root
    for path in map(Path, texts_in([str(root)], inventory)[: 4 * LOOKED_AT]):
        where, line = next(read_object_lines(path), ('', ''))
        if has_corners(line) and not is_yolo(line):
            raise ValueError(f'{path.with_name(where)}: {OF_DOTA}')
        if is_yolo(line) and ',' not in line:
            raise ValueError(
                f'{path} has labels as of YOLO, but none of its folders has their images '
                f'({", ".join(inventory.image_suffixes)}; there are {inventory.suffixes_in(root)}):'
                ' put them in images/ beside labels/, beside these, or where a data.yaml says'
            )


YOLO = Format('yolo', 'YOLO', ('.txt',), find_yolo, read_yolo, FILES)
