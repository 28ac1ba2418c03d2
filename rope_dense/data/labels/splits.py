"""The images for training and for validation: by lists, by folders, or by a hash of their names."""

import hashlib
import os
import re
import unicodedata
from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import product
from pathlib import Path

from .files import read_text, without_suffix
from .inventory import VAL_PART, Images, Inventory
from .objects import Split
from .pairs import SPLITS, FilePairs

Splits = tuple[dict[str, Split], str]  # and what says which image is in which, in words
WORDS = {'train': 'training', 'val': 'validation'}
BY_HASH = f'a hash of the name (one image of {VAL_PART} for validation)'
TRAINING = ('trainval', *SPLITS['train'], 'default')  # CVAT exports default.txt
LISTS = (('trainval', 'test'), *product((*SPLITS['train'], 'trainval'), SPLITS['val']))
PER_CLASS = re.compile(r'\s+(-1|0|1)$')  # the last word in lists of one class
NO_SPLIT = 'label file without an image, in no split'
UNUSED = 'labelled image in no split (neither trained nor evaluated)'
# Of a split: the files, the images (also without a file), and images that are listed and not there.
Chosen = tuple[Collection[str], Collection[str], Collection[str]]
Both = dict[str, Chosen]  # of 'train' and 'val'


def is_for_validation(stem: str, val_part: int = VAL_PART) -> bool:
    """Return whether an image of this path is for validation where nothing says which."""
    return digest_of(stem)[0] % val_part == 0


def digest_of(stem: str) -> bytes:
    """A digest of the path of an image, which more images do not change, nor Unicode's forms."""
    return hashlib.sha256(os.fsencode(unicodedata.normalize('NFC', stem))).digest()


def validation_of(
    stems: Collection[str], inventory: Inventory, source: Path
) -> set[str]:
    """The images for validation, by a hash of each path: more images move none.

    Where the hash would leave a split empty, one image is moved, and stays where it was moved to:
    ``inventory.moved`` remembers it. ValueError for less than two images.
    """
    if len(stems) < 2:
        raise ValueError(
            f'{source}: {len(stems)} labelled image, so none for validation: put '
            'training and validation images in train/ and val/'
        )
    moved, part, ordered = (
        inventory.moved,
        inventory.val_part,
        sorted(stems, key=digest_of),
    )
    val = {stem for stem in ordered if moved.get(stem, is_for_validation(stem, part))}
    if len(val) in (0, len(ordered)):
        image = ordered[-1 if val else 0]
        moved[image] = not val
        val ^= {image}
    return val


def split_by_hash(
    part: Split, stems: Collection[str], key: Callable[[str], str] = str
) -> Splits:
    """Both splits of the labelled images of one file, by keys of paths as in ``Split.names``."""
    val = validation_of({*map(key, stems)}, part.inventory, part.source)
    of_val = frozenset(stem for stem in stems if key(stem) in val)
    names = {'train': frozenset(stems) - of_val, 'val': of_val}
    return {split: replace(part, names=some) for split, some in names.items()}, BY_HASH


def unlabelled_error(
    folder: Path | str, source: Path | str, what: str = 'labels'
) -> ValueError:
    """The error of images for validation without labels."""
    return ValueError(f'{folder} has images, but no {what} as {source} has')


def split_files(pairs: FilePairs, inventory: Inventory) -> Splits:
    """Both splits of images that have a file each; ValueError for labels of only one split."""
    found = split_by_lists(pairs, inventory) or split_by_words(pairs)
    chosen, by = found or (
        split_pairs_by_hash(pairs, inventory, [*pairs.files]),
        BY_HASH,
    )
    parts = {split: part_of(pairs, inventory, *some) for split, some in chosen.items()}
    parts['train'] = replace(parts['train'], notes=tuple(pairs.notes))
    return parts, by


def part_of(
    pairs: FilePairs,
    inventory: Inventory,
    files: Collection[str],
    images: Collection[str],
    absent: Collection[str] = (),
) -> Split:
    """The labels of a split."""
    matched = {file: pairs.image_of[file] for file in files if file in pairs.image_of}
    labelled = {*pairs.image_of.values()}
    tops = {pairs.images[image].top for image in (*matched.values(), *images)}
    folders = {os.path.dirname(file) for file in files or pairs.files}
    return Split(
        source=Path(os.path.commonpath(folders))
        if folders
        else pairs.source or pairs.home,
        images=Path(os.path.commonpath(tops)) if tops else pairs.home,
        inventory=inventory,
        pairs={Path(file): Path(image) for file, image in matched.items()},
        orphans={
            Path(file): pairs.orphans[file] for file in files if file in pairs.orphans
        },
        unlabelled=[Path(image) for image in sorted(images) if image not in labelled],
        absent=sorted(absent),
    )


def split_by_words(pairs: FilePairs) -> tuple[Both, str] | None:
    """Both splits by words in paths; None without labels of both, ValueError without training."""
    split_of = {path: pairs.split_of(path) for path in pairs.files}
    there = {split_of[path] for path in pairs.image_of}
    names = {
        split: [name for name in SPLITS[split] if name in there] for split in SPLITS
    }
    names['val'] = [name for name in names['val'] if name != 'test'] or names['val']
    if not names['val']:
        return None
    if not names['train']:
        label = next(path for path, split in split_of.items() if split in names['val'])
        folder = os.path.dirname(label)
        raise ValueError(
            f'{folder} has labels for validation, and no train/ beside it has labels'
        )
    chosen = Both()
    for split, some in names.items():
        files = [path for path, name in split_of.items() if name in some]
        images = [path for path, one in pairs.images.items() if one.split in some]
        chosen[split] = files, images, ()
    for path in (*pairs.orphans, *pairs.image_of):
        if not split_of[path]:
            kind = UNUSED if path in pairs.image_of else NO_SPLIT
            pairs.notes.append((kind, os.path.basename(path)))
    return chosen, 'folder (test/ is for validation)' if 'test' in names[
        'val'
    ] else 'folder'


def split_pairs_by_hash(
    pairs: FilePairs, inventory: Inventory, files: Collection[str]
) -> Both:
    """Both splits by ``validation_of``; ValueError for images for validation without labels."""
    source = os.path.dirname(next(iter(files))) if files else pairs.home
    labelled = {*pairs.image_of.values()}
    rest = {image: one for image, one in pairs.images.items() if image not in labelled}
    for image, one in rest.items():
        if one.split in SPLITS['val'] and one.split != 'test':
            words = (
                (folder, pairs.kind.word(folder.name)) for folder in Path(image).parents
            )
            place = [folder for folder, word in words if word and word[0] == one.split][
                -1
            ]
            raise unlabelled_error(place, source, pairs.kind.plural)
    places = {f: pairs.images[pairs.image_of[f]] for f in files if f in pairs.image_of}
    key_of = {file: places.get(file, pairs.files[file]).key for file in files}
    rest_of = {image: one.key for image, one in rest.items() if one.split != 'test'}
    negatives = pairs.kind.negatives
    with_image = {key for file, key in key_of.items() if file in places}
    keys = with_image or {*key_of.values()}  # a label without an image chooses no image
    if negatives:  # then an image without a file is labelled, too
        keys |= {*rest_of.values()}
    val, chosen = validation_of(keys, inventory, Path(source)), Both()
    for split in SPLITS:
        is_val = split == 'val'
        labels = [file for file, key in key_of.items() if (key in val) == is_val]
        others = [
            x for x, key in rest_of.items() if (negatives and key in val) == is_val
        ]
        chosen[split] = labels, others, ()
    return chosen


def split_by_lists(pairs: FilePairs, inventory: Inventory) -> tuple[Both, str] | None:
    """Both splits by train.txt, val.txt, ... in ImageSets/Main, ImageSets or the data set's folder.

    A part of the training list is for validation where no other list is. ValueError for lists of
    which none is of labelled images for training.
    """
    lists = lists_in(pairs, inventory)
    start = len(os.path.join(pairs.home, ''))
    named = {
        f'{one.key}{os.path.splitext(x)[1]}': Path(x) for x, one in pairs.images.items()
    }
    images = Images(
        pairs.home, named | {path[start:]: Path(path) for path in pairs.images}
    )
    orphan_of = {pairs.files[path].key: path for path in pairs.orphans}
    file_of = {image: path for path, image in pairs.image_of.items()}
    chosen: dict[str, Chosen] = {}
    for name, path in lists.items():
        files, found, absent = list[str](), dict[str, None](), list[str]()
        for line in filter(None, map(str.strip, read_text(path).splitlines())):
            short = without_suffix(PER_CLASS.sub('', line))
            orphan = orphan_of.get(short)
            if image := images.find(line) if orphan else listed_image(line, images):
                found[str(image)] = None
            elif orphan:
                files.append(orphan)
            else:
                absent.append(short)
        files += [file_of[image] for image in found if image in file_of]
        chosen[name] = files, [*found], absent
    labelled = [name for name, (files, *_) in chosen.items() if files]
    for train, val in LISTS:
        if train in labelled and val in labelled:
            by = f'ImageSets ({lists[train].name}, {lists[val].name})'
            return {'train': chosen[train], 'val': chosen[val]}, by
    for name in TRAINING:
        if name in labelled:
            some, pictures, missing = chosen[name]
            both = split_pairs_by_hash(pairs, inventory, some)
            rest = [image for image in pictures if image not in file_of]
            both['train'] = both['train'][0], rest, missing
            return both, f'{lists[name].name} and {BY_HASH}'
    if not lists or not pairs.kind.lists:
        return None
    said = ', '.join(str(path.relative_to(pairs.home)) for path in lists.values())
    raise ValueError(
        f'{pairs.home} has {said}, but no list of training images (train.txt) with labels in '
        f'{os.path.dirname(next(iter(pairs.files)))}'
    )


def lists_in(pairs: FilePairs, inventory: Inventory) -> dict[str, Path]:
    """The lists of a data set by name, from the first folder that has some."""
    known = {*TRAINING, *SPLITS['val']}
    sets = inventory.subfolders(pairs.home).get('imagesets')
    inner = inventory.subfolders(sets).get(pairs.kind.lists or 'main') if sets else None
    for place in filter(None, (inner, sets, pairs.home)):
        files = inventory.directly(place, ('.txt',))
        found = {name: file for file in files if (name := file.stem.lower()) in known}
        if found and (
            place != pairs.home or pairs.kind.is_map or {*TRAINING} & found.keys()
        ):
            return found
    return {}


def listed_image(line: str, images: Images) -> Path | None:
    """The image of a line of a list: a name or path, with a suffix or without.

    Behind it may be the path of its label file or mask, or the number of a list of one class.
    """
    if found := images.find(line):
        return found
    gaps = [gap.start() for gap in re.finditer(r'[\s,;]+', line)]
    return next(
        (file for end in reversed(gaps) if (file := images.find(line[:end]))), None
    )
