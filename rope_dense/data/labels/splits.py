"""The images for training and for validation: by lists, by folders, or by a hash of their names."""

import hashlib
import os
import re
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

from .files import read_numbered_lines, without_suffix
from .inventory import VAL_PART, Images, Inventory, are_elsewhere
from .label_folder import Split, SplitFiles
from .objects import ELSEWHERE
from .places import SPLITS, FileKind, FilePairs

Splits = tuple[dict[str, Split], str]  # and what says which image is in which, in words
WORDS = {'train': 'training', 'val': 'validation'}
BY_HASH = f'a hash of the name (one image of {VAL_PART} for validation)'
TRAINING = ('trainval', *SPLITS['train'], 'default')  # CVAT exports default.txt
LISTS = (('trainval', 'test'), *product((*SPLITS['train'], 'trainval'), SPLITS['val']))
PER_CLASS = re.compile(r'\s+(-1|0|1)$')  # the last word in lists of one class
COPY = re.compile(r'[.]rf[.]\w+$')  # Roboflow's copies of one photograph: a_jpg.rf.1f3c
NO_SPLIT = 'label file without an image, in no split'
TEST = re.compile(r'(?<![a-z0-9])test(?:20\d\d)?(?![a-z0-9])', re.IGNORECASE)
UNUSED = 'labelled image in no split (neither trained nor evaluated)'


class Chosen(NamedTuple):
    """The files that are chosen for a split."""

    files: list[str]
    images: list[str]  # also without a file
    absent: Collection[str] = ()  # names of images that are listed and not there


ChosenByName = dict[str, Chosen]  # of a split or a list


def is_for_validation(stem: str, share: float = 1 / VAL_PART) -> bool:
    """Return whether an image of this path is for validation where nothing says which."""
    part = round(1000 * share)
    return digest_of(stem)[0] * part % 1000 < part


def digest_of(stem: str) -> bytes:
    """A digest of the path of an image, which more images do not change, nor Unicode's forms."""
    return hashlib.sha256(os.fsencode(unicodedata.normalize('NFC', stem))).digest()


def validation_of(
    stems: Collection[str], inventory: Inventory, source: Path
) -> set[str]:
    """The images for validation, by a hash of each path: more images move none.

    Copies of one photograph, by their names, stay together.
    Where the hash would leave a split empty, one image is moved, and stays where it was moved to:
    ``inventory.moved`` remembers it. ValueError for less than two images.
    """
    photograph_of = {stem: COPY.sub('', stem) for stem in stems}
    ordered = sorted({*photograph_of.values()}, key=digest_of)
    if len(ordered) < 2:
        raise ValueError(
            f'{source}: {len(ordered)} labelled image, so none for validation: put '
            'training and validation images in train/ and val/'
        )
    moved = inventory.moved
    share = inventory.val_share
    val = {stem for stem in ordered if moved.get(stem, is_for_validation(stem, share))}
    if len(val) in (0, len(ordered)):
        image = ordered[-1 if val else 0]
        moved[image] = not val
        val ^= {image}
    return {stem for stem, photograph in photograph_of.items() if photograph in val}


def copies_in(train: Collection[Path], val: Collection[Path]) -> list[Path]:
    """The validation images that are training images, too: the same files, or the same bytes."""
    same = {*train}.intersection(val)
    of_train = [*train]
    of_val = [*{*val} - same]
    start_of = partial(content_of, most=4096)  # all is read of few
    for known_by in (os.path.getsize, start_of, content_of):
        of_val = alike(of_val, of_train, known_by)
        of_train = alike(of_train, of_val, known_by)
    return sorted(same.union(of_val))


def alike(
    files: Collection[Path],
    others: Collection[Path],
    known_by: Callable[[Path], object],
) -> list[Path]:
    """The files that are like one of the others."""
    known = {*map(known_by, others)}
    return [path for path in files if known_by(path) in known]


def content_of(path: Path, most: int = -1) -> bytes:
    """A digest of a file, or of so many bytes of it at most."""
    with open(path, 'rb') as file:
        return hashlib.sha256(file.read(most)).digest()


def split_by_hash(
    both: Split, stems: Collection[str], key: Callable[[str], str] = str
) -> Splits:
    """Both splits of the labelled images of one file, by keys of paths as in ``Split.names``."""
    keys = validation_of({*map(key, stems)}, both.inventory, both.source)
    names = frozenset(stem for stem in stems if key(stem) in keys)
    train = replace(both, names=frozenset(stems) - names)
    val = replace(both, names=names)
    return dict(train=train, val=val), BY_HASH


def split_word(split: str, inventory: Inventory) -> str:
    """What the images of a split are called: of an evaluation they are labelled ones."""
    return 'labelled' if inventory.asked else WORDS[split]


def unused_tests(
    inventory: Inventory, used: Collection[Path], kind: FileKind | None = None
) -> list[str]:
    """A line on the images in folders for tests, unless they are used; ``kind`` of maps."""
    count = 0
    for path, image in inventory.images(inventory.root).by_path.items():
        folder = os.path.dirname(path)
        if image in used or not TEST.search(folder):
            continue
        words = [kind.word(name) for name in folder.split('/')] if kind else []
        count += not any(word and word.of_labels for word in words)
    if not count or inventory.asked:
        return []
    return [
        f'{count} images in test/ are neither trained nor evaluated; if they are labelled, '
        '`rope-dense test RUN --split test` evaluates them'
    ]


def unlabelled_error(
    folder: Path | str, source: Path | str, what: str = 'labels'
) -> ValueError:
    """The error of images for validation without labels."""
    return ValueError(f'{folder} has images, but no {what} as {source} has')


def split_files(pairs: FilePairs, inventory: Inventory) -> Splits:
    """Both splits of images that have a file each; ValueError for labels of only one split."""
    found = split_by_lists(pairs, inventory) or split_by_words(pairs, inventory)
    if found is None:
        found = split_pairs_by_hash(pairs, inventory, [*pairs.files]), BY_HASH
    chosen, by = found
    splits = {}
    for name, choice in chosen.items():
        notes = tuple(pairs.notes) if name == 'train' else ()
        splits[name] = make_split(pairs, inventory, choice, notes)
    return splits, by


def make_split(
    pairs: FilePairs,
    inventory: Inventory,
    chosen: Chosen,
    notes: Sequence[tuple[str, str]] = (),
) -> Split:
    """The labels of a split."""
    labelled = {*pairs.image_of.values()}
    tops = set()
    unlabelled = []
    matched = {}
    orphans = {}
    for image in sorted(chosen.images):
        tops.add(pairs.images[image].top)
        if image not in labelled:
            unlabelled.append(Path(image))
    for file in chosen.files:
        if file in pairs.image_of:
            image = pairs.image_of[file]
            tops.add(pairs.images[image].top)
            matched[Path(file)] = Path(image)
        elif file in pairs.orphans:
            orphans[Path(file)] = pairs.orphans[file]
    folders = {os.path.dirname(file) for file in chosen.files or pairs.files}
    source = pairs.source or pairs.home
    images = pairs.home
    if folders:
        source = Path(os.path.commonpath(folders))
    if tops:
        images = Path(os.path.commonpath(tops))
    files = SplitFiles(matched, orphans, unlabelled, sorted(chosen.absent), notes)
    return Split(source, images, inventory=inventory, files=files)


def split_by_words(
    pairs: FilePairs, inventory: Inventory
) -> tuple[ChosenByName, str] | None:
    """Both splits by words in paths; None without labels of both, ValueError without training.

    For an evaluation, the only split is both.
    """
    split_of = {path: pairs.split_of(path) for path in pairs.files}
    there = set(map(pairs.split_of, pairs.image_of))
    train = there.intersection(SPLITS['train'])
    val = there.intersection(SPLITS['val'])
    if len(val) > 1:
        val.discard('test')
    if not val:
        return None
    if inventory.asked:
        train = train or val
    chosen = ChosenByName()
    for name, words in (('train', train), ('val', val)):
        files = [path for path, split in split_of.items() if split in words]
        images = [path for path, place in pairs.images.items() if place.split in words]
        chosen[name] = Chosen(files, images)
    if not train:
        folder = os.path.dirname(chosen['val'].files[0])
        raise ValueError(
            f'{folder} has labels for validation, and no train/ beside it has labels'
        )
    for paths, note in ((pairs.orphans, NO_SPLIT), (pairs.image_of, UNUSED)):
        for path in paths:
            if not split_of[path]:
                pairs.notes.append((note, os.path.basename(path)))
    by = 'folder (test/ is for validation)' if 'test' in val else 'folder'
    return chosen, by


def split_pairs_by_hash(
    pairs: FilePairs, inventory: Inventory, files: Collection[str]
) -> ChosenByName:
    """Both splits by ``validation_of``; ValueError for images for validation without labels."""
    source = os.path.dirname(next(iter(files))) if files else pairs.home
    labelled = {*pairs.image_of.values()}
    without_file = {}
    for image, place in pairs.images.items():
        if image in labelled or place.split == 'test':
            continue
        if place.split not in SPLITS['val']:
            without_file[image] = place.key
            continue
        for folder in reversed(Path(image).parents):
            word = pairs.kind.word(folder.name)
            if word and word.split == place.split:
                raise unlabelled_error(folder, source, pairs.kind.plural)
    key_of = {}
    with_image = set()
    for file in files:
        if file in pairs.image_of:
            key_of[file] = pairs.images[pairs.image_of[file]].key
            with_image.add(key_of[file])
        else:
            key_of[file] = pairs.files[file].key
    keys = with_image or {*key_of.values()}  # a label without an image chooses no image
    negatives = pairs.kind.negatives
    if negatives:  # then an image without a file is labelled, too
        keys.update(without_file.values())
    val = validation_of(keys, inventory, Path(source))
    chosen = {name: Chosen([], []) for name in SPLITS}
    for file, key in key_of.items():
        chosen['val' if key in val else 'train'].files.append(file)
    for image, key in without_file.items():
        is_val = negatives and key in val
        chosen['val' if is_val else 'train'].images.append(image)
    return chosen


def split_by_lists(
    pairs: FilePairs, inventory: Inventory
) -> tuple[ChosenByName, str] | None:
    """Both splits by train.txt, val.txt, ... in ImageSets/Main, ImageSets or the data set's folder.

    A part of the training list is for validation where no other list is. ValueError for lists of
    which none is of labelled images for training.
    """
    lists = lists_in(pairs, inventory)
    chosen = read_lists(lists, pairs)
    labelled = [name for name, choice in chosen.items() if choice.files]
    for train, val in LISTS:
        if train in labelled and val in labelled:
            by = f'ImageSets ({lists[train].name}, {lists[val].name})'
            return {'train': chosen[train], 'val': chosen[val]}, by
    for name in TRAINING:
        if name in labelled:
            files, images, absent = chosen[name]
            both = split_pairs_by_hash(pairs, inventory, files)
            with_file = {*pairs.image_of.values()}
            rest = [image for image in images if image not in with_file]
            both['train'] = Chosen(both['train'].files, rest, absent)
            return both, f'{lists[name].name} and {BY_HASH}'
    if not lists or not pairs.kind.lists or inventory.asked:
        return None
    names = ', '.join(str(path.relative_to(pairs.home)) for path in lists.values())
    raise ValueError(
        f'{pairs.home} has {names}, but no list of training images (train.txt) with labels in '
        f'{os.path.dirname(next(iter(pairs.files)))}'
    )


def read_lists(lists: Mapping[str, Path], pairs: FilePairs) -> ChosenByName:
    """The files, the images and what is absent of each list."""
    start = len(os.path.join(pairs.home, ''))
    by_key = {}
    by_path = {}
    for path, place in pairs.images.items():
        by_key[place.key + os.path.splitext(path)[1]] = Path(path)
        by_path[path[start:]] = Path(path)
    images = Images(pairs.home, by_key | by_path, {})
    orphan_of = {pairs.files[path].key: path for path in pairs.orphans}
    file_of = {image: path for path, image in pairs.image_of.items()}
    chosen = ChosenByName()
    elsewhere: dict[str, None] = {}
    lines = {}
    for name, file in lists.items():
        lines[name] = [line for _, line in read_numbered_lines(file)]
        for line in lines[name]:
            listed_image(line, images)  # all names are known before one is taken
    for name, given in lines.items():
        found: dict[str, None] = {}
        files = []
        absent = []
        for line in given:
            short = without_suffix(PER_CLASS.sub('', line))
            orphan = orphan_of.get(short)
            image = images.find(line) if orphan else listed_image(line, images)
            if image:
                found[str(image)] = None
                if are_elsewhere(short, pairs.images[str(image)].key):
                    elsewhere[short] = None
            elif orphan:
                files.append(orphan)
            else:
                absent.append(short)
        files += filter(None, map(file_of.get, found))
        chosen[name] = Chosen(files, [*found], absent)
    pairs.notes += [(ELSEWHERE, short) for short in elsewhere]
    return chosen


def lists_in(pairs: FilePairs, inventory: Inventory) -> dict[str, Path]:
    """The lists of a data set by name, from the first folder that has some."""
    sets = inventory.subfolders(pairs.home).get('imagesets')
    inner = inventory.subfolders(sets).get(pairs.kind.lists or 'main') if sets else None
    for folder in filter(None, (inner, sets, pairs.home)):
        found = {}
        for file in inventory.directly(folder, ('.txt',)):
            name = file.stem.lower()
            if name in TRAINING or name in SPLITS['val']:
                found[name] = file
        has_training = not found.keys().isdisjoint(TRAINING)
        if found and (folder != pairs.home or pairs.kind.is_map or has_training):
            return found
    return {}


def listed_image(line: str, images: Images) -> Path | None:
    """The image of a line of a list: a name or path, with a suffix or without.

    Behind it may be the path of its label file or mask, or the number of a list of one class.
    """
    ends = [gap.start() for gap in re.finditer(r'[\s,;]+|\Z', line)]
    for end in reversed(ends):
        image = images.find(line[:end])
        if image:
            return image
    return None
