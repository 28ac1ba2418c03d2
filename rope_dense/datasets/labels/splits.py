"""The images for training and for validation: by lists, by folders, or by a hash of their names."""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections.abc import Collection
from dataclasses import replace
from itertools import product
from pathlib import Path

from .files import read_text, without_suffix
from .inventory import VAL_PART, Images, Inventory
from .objects import Part
from .pairs import SPLITS, Pairs

Splits = tuple[dict[str, Part], str]  # and what says which image is in which, in words
WORDS = {'train': 'training', 'val': 'validation'}
BY_HASH = f'a hash of the name (one image of {VAL_PART} for validation)'
TRAINING = ('trainval', *SPLITS['train'], 'default')  # CVAT exports default.txt
LISTS = (('trainval', 'test'), *product((*SPLITS['train'], 'trainval'), SPLITS['val']))
PER_CLASS = re.compile(r'\s+(-1|0|1)$')  # the last word in lists of one class


def is_for_validation(stem: str, val_part: int = VAL_PART) -> bool:
    """Return whether an image of this path is for validation where nothing says which."""
    return digest_of(stem)[0] % val_part == 0


def digest_of(stem: str) -> bytes:
    """A digest of the path of an image, which more images do not change, nor Unicode's forms."""
    return hashlib.sha256(os.fsencode(unicodedata.normalize('NFC', stem))).digest()


def validation_of(stems: Collection[str], inventory: Inventory, source: Path) -> set[str]:
    """The images for validation, by a hash of each path: more images move none.

    Where the hash would leave a split empty, one image is moved, and stays where it was moved to:
    ``inventory.moved`` remembers it.

    Raises:
        ValueError: less than two images.
    """
    if len(stems) < 2:
        raise ValueError(
            f'{source}: {len(stems)} labelled image, so none for validation: put '
            'training and validation images in train/ and val/'
        )
    moved, ordered = inventory.moved, sorted(stems, key=digest_of)
    part = inventory.val_part
    val = {stem for stem in ordered if moved.get(stem, is_for_validation(stem, part))}
    if not val:
        moved[ordered[0]] = True
        val = {ordered[0]}
    elif len(val) == len(ordered):
        moved[ordered[-1]] = False
        val.remove(ordered[-1])
    return val


def by_hash(part: Part, stems: Collection[str]) -> Splits:
    """Both splits of the images of one file of labels, see ``validation_of``.

    Args:
        stems: paths of the labelled images, in their folder and without suffix.
    """
    val = validation_of(stems, part.inventory, part.source)
    names = {'train': frozenset(stems) - val, 'val': frozenset(val)}
    return {split: replace(part, names=some) for split, some in names.items()}, BY_HASH


def unlabelled(folder: Path | str, source: Path | str, what: str = 'labels') -> ValueError:
    """The error of images for validation without labels."""
    return ValueError(f'{folder} has images, but no {what} as {source} has')


def split_pairs(pairs: Pairs, inventory: Inventory) -> Splits:
    """Both splits of images that have a file each, and what says which image is in which.

    Raises:
        ValueError: labels of only one split, or lists that name no image.
    """
    found = by_lists(pairs, inventory) or by_words(pairs)
    chosen, by = found or (by_hash_of_pairs(pairs, inventory, [*pairs.files]), BY_HASH)
    parts = {split: part_of(pairs, inventory, *some) for split, some in chosen.items()}
    parts['train'] = replace(parts['train'], notes=tuple(pairs.notes))
    return parts, by


Chosen = tuple[Collection[str], Collection[str], Collection[str]]
# Of a split: the files, the images (also without a file), and images that are listed and not there.


def part_of(
    pairs: Pairs,
    inventory: Inventory,
    files: Collection[str],
    images: Collection[str],
    absent: Collection[str] = (),
) -> Part:
    """The labels of a split."""
    image_of = {Path(f): Path(pairs.image_of[f]) for f in files if f in pairs.image_of}
    labelled = {*pairs.image_of.values()}
    tops = {pairs.images[pairs.image_of[f]].top for f in files if f in pairs.image_of}
    tops |= {pairs.images[image].top for image in images}
    folders = {os.path.dirname(f) for f in files} or {os.path.dirname(f) for f in pairs.files}
    split_images = Path(os.path.commonpath(tops)) if tops else pairs.home
    return Part(
        source=Path(os.path.commonpath(folders)) if folders else pairs.source or pairs.home,
        images=split_images,
        inventory=inventory,
        pairs=image_of,
        orphans={Path(f): pairs.orphans[f] for f in files if f in pairs.orphans},
        unlabelled=[Path(image) for image in sorted(images) if image not in labelled],
        absent=sorted(absent),
    )


def by_words(pairs: Pairs) -> tuple[dict[str, Chosen], str] | None:
    """Both splits by words in paths; None without labels of both, ValueError without training."""
    split_of = {path: pairs.split_of(path) for path in pairs.files}
    there = {split_of[path] for path in pairs.image_of}
    train = [name for name in SPLITS['train'] if name in there]
    val = [name for name in SPLITS['val'] if name in there]
    val = [name for name in val if name != 'test'] or val
    if val and not train:
        label = next(path for path, split in split_of.items() if split in val)
        raise ValueError(
            f'{os.path.dirname(label)} has labels for validation, and no train/ beside it has '
            'labels'
        )
    if not train or not val:
        return None
    chosen = dict[str, Chosen]()
    for split, names in (('train', train), ('val', val)):
        files = [path for path, name in split_of.items() if name in names]
        images = [path for path, one in pairs.images.items() if one.split in names]
        chosen[split] = files, images, ()
    for path, why in pairs.orphans.items():
        if not split_of[path] and why:
            pairs.notes.append((NO_SPLIT, os.path.basename(path)))
    for path in pairs.image_of:
        if not split_of[path]:
            kind = 'labelled image in no split (neither trained nor evaluated)'
            pairs.notes.append((kind, os.path.basename(path)))
    return chosen, 'folder' if 'test' not in val else 'folder (test/ is for validation)'


NO_SPLIT = 'label file without an image, in no split'


def by_hash_of_pairs(
    pairs: Pairs, inventory: Inventory, files: Collection[str]
) -> dict[str, Chosen]:
    """Both splits by a hash of the keys of images, see ``validation_of``.

    Args:
        files: with the labels of both.

    Raises:
        ValueError: images for validation without labels.
    """
    source = os.path.dirname(next(iter(files))) if files else pairs.home
    labelled = {*pairs.image_of.values()}
    for image, one in pairs.images.items():
        if one.split in SPLITS['val'] and one.split != 'test' and image not in labelled:
            words = ((folder, pairs.kind.word(folder.name)) for folder in Path(image).parents)
            place = [folder for folder, word in words if word and word[0] == one.split][-1]
            raise unlabelled(place, source, pairs.kind.plural)
    key_of = {f: pairs.images[pairs.image_of[f]].key for f in files if f in pairs.image_of}
    key_of |= {f: pairs.files[f].key for f in files if f in pairs.orphans}
    rest = {
        image: one.key
        for image, one in pairs.images.items()
        if image not in labelled and (one.split != 'test')
    }
    in_split = rest if pairs.kind.negatives else {}
    val = validation_of({*key_of.values(), *in_split.values()}, inventory, Path(source))
    train = [f for f, key in key_of.items() if key not in val]
    others = [image for image in rest if image not in in_split]
    return {
        'train': (train, [*others, *(i for i, key in in_split.items() if key not in val)], ()),
        'val': (
            [f for f, key in key_of.items() if key in val],
            [i for i, key in in_split.items() if key in val],
            (),
        ),
    }


def by_lists(pairs: Pairs, inventory: Inventory) -> tuple[dict[str, Chosen], str] | None:
    """Both splits by train.txt, val.txt, ... in ImageSets/Main, ImageSets or the data set's folder.

    A part of the training list is for validation where no other list is.

    Raises:
        ValueError: lists of which none is of labelled images for training.
    """
    lists = lists_in(pairs, inventory)
    start = len(os.path.join(pairs.home, ''))
    named = {f'{one.key}{os.path.splitext(x)[1]}': Path(x) for x, one in pairs.images.items()}
    images = Images(pairs.home, named | {path[start:]: Path(path) for path in pairs.images})
    orphan_of = {pairs.files[path].key: path for path in pairs.orphans}
    file_of = {image: path for path, image in pairs.image_of.items()}
    chosen: dict[str, Chosen] = {}
    for name, path in lists.items():
        files, found, absent = list[str](), dict[str, None](), list[str]()
        for line in filter(None, map(str.strip, read_text(path).splitlines())):
            short = without_suffix(PER_CLASS.sub('', line))
            if image := images.find(line):
                found[str(image)] = None
            elif orphan := orphan_of.get(short):
                files.append(orphan)
            elif image := listed_image(line, images):
                found[str(image)] = None
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
            both = by_hash_of_pairs(pairs, inventory, some)
            rest = [image for image in pictures if image not in file_of]
            both['train'] = both['train'][0], rest, missing
            return both, f'{lists[name].name} and {BY_HASH}'
    if not lists or not pairs.kind.lists:
        return None
    said = ', '.join(str(path.relative_to(pairs.home)) for path in lists.values())
    source = os.path.dirname(next(iter(pairs.files)))
    raise ValueError(
        f'{pairs.home} has {said}, but no list of training images (train.txt) with labels in '
        f'{source}'
    )


def lists_in(pairs: Pairs, inventory: Inventory) -> dict[str, Path]:
    """The lists of a data set by name, from the first folder that has some."""
    known = {*TRAINING, *SPLITS['val']}
    sets = inventory.subfolders(pairs.home).get('imagesets')
    inner = inventory.subfolders(sets).get(pairs.kind.lists or 'main') if sets else None
    for place in filter(None, (inner, sets, pairs.home)):
        files = {file.stem.lower(): file for file in inventory.directly(place, ('.txt',))}
        found = {name: file for name, file in files.items() if name in known}
        if found and (place != pairs.home or pairs.kind.is_map or {*TRAINING} & found.keys()):
            return found
    return {}


def listed_image(line: str, images: Images) -> Path | None:
    """The image of a line of a list; None if it is not there.

    A line is a name or path, with a suffix or without; behind it may be the path of its label file
    or mask, or the number of a list of one class.
    """
    if found := images.find(line):
        return found
    gaps = [gap.start() for gap in re.finditer(r'[\s,;]+', line)]
    return next((file for end in reversed(gaps) if (file := images.find(line[:end]))), None)
