"""The COCO data set in a folder: its files, the folders of their images, and the splits."""

import os
from collections import defaultdict
from collections.abc import Set
from dataclasses import replace
from pathlib import Path

from .coco import read_coco
from .coco_files import (
    USUAL_FOLDERS,
    CocoFile,
    best_file,
    candidates,
    chosen_files,
    find_image,
    load_coco,
    splits_in,
    stem_of,
    words_of,
)
from .files import parts_of
from .inventory import Inventory
from .label_folder import Format, LabelFolder, Split
from .objects import printable_text
from .splits import Splits, split_by_hash, unlabelled_error

IMAGE_FOLDERS = ('images', 'data', 'jpegimages')
SAMPLE = 50  # names that are looked for in a folder of images


def find_coco(
    inventory: Inventory,
    train: str | None = None,
    val: str | None = None,
) -> LabelFolder | None:
    """A COCO file of each split, or one of all images, which a hash of their names splits.

    Args:
        train, val: files that settings name, below the folder or absolute; of two splits, the
            other file is looked for as it is without settings.

    Raises:
        ValueError: files that cannot be used, or several that could be meant.
    """
    home = inventory.root
    split_by = 'own.train and own.val'
    if train or val:
        files = named_files(inventory, train, val)
    else:
        home, files = chosen_files(inventory)
        paths = [relative_folder(file.path, inventory.root) for file in files.values()]
        split_by = ' and '.join(paths)
    if not files:
        return None
    splits = {}
    there = set[Path]()
    listed = set[Path | None]()
    for split, file in files.items():
        part = part_of(file, home, split, inventory)
        splits[split] = part
        images = inventory.images(part.images)
        there.update(images.by_path.values())
        listed.update(find_image(images, name) for name in file.image_names())
    if len(files) == 1:
        if not train:
            check_unlabelled(part, home, listed)
        splits, split_by = split_one(file, part)
    # What is of no split, such as images that no file lists, is counted once, in training.
    unlisted = [path.name for path in sorted(there - listed)]
    parts = {
        'train': replace(splits['train'], options=dict(unlisted=unlisted)),
        'val': replace(splits['val'], options=dict(counts=len(files) > 1)),
    }
    return LabelFolder(COCO, parts, split_by)


def named_files(
    inventory: Inventory,
    train: str | None,
    val: str | None,
) -> dict[str, CocoFile]:
    """The COCO files that own.train and own.val name, below the folder of the data or absolute.

    One of them may be None: its file is looked for.
    """
    root = inventory.root
    others = candidates(inventory)
    files = {}
    for split, given in (('train', train), ('val', val)):
        if not given:
            file = best_file(others, split)
        else:
            path = Path(os.path.normpath(root / given))
            if not inventory.is_file(path) and path.is_file():  # in another folder
                inventory.include(path)
            if not inventory.is_file(path):
                raise ValueError(f'{root / given}: no such file; check own.{split}')
            file = load_coco(path)
            file.check()
        if file is not None:
            files[split] = file
    if 'train' not in files:
        raise ValueError(
            f'{root}: no COCO file of the training split: name it by own.train'
        )
    return files


def part_of(file: CocoFile, home: Path, split: str, inventory: Inventory) -> Split:
    """The labels of a file, with the folder that has most of its images.

    Images are looked for by their names as they are, then anywhere below. A split's folder that has
    some is not left for a wider one, where another split may have an image of the same name.

    Args:
        home: folder of the data set.

    Raises:
        ValueError: it has no image, or they are in none of the usual folders.
    """
    path = file.path
    names = file.image_names()
    if not names:
        what = 'no image'
        if file.content['images']:
            what = 'no file_name of an image'
        raise ValueError(f'{path}: {what} in it')
    folders = image_folders(path, home, split, inventory)
    sample = names[:: max(1, len(names) // SAMPLE)]
    best = home
    most = 0
    for is_below in (False, True):
        for folder in folders:
            number = 0
            for name in sample:
                if is_below:
                    number += find_image(inventory.images(folder), name) is not None
                else:
                    number += inventory.is_file(folder.joinpath(*parts_of(name)))
            if number > most:
                best = folder
                most = number
        if most == len(sample) or (split and most):
            break
    if not most:
        looked = dict.fromkeys(relative_folder(place, home) for place in folders)
        name = printable_text(names[0])
        raise ValueError(
            f'{path}: its images, such as {name:.200}, are in none of {", ".join(looked)} '
            f'of {home}, which has {inventory.suffixes_in(home)}'
        )
    return Split(path, best, inventory=inventory)


def relative_folder(folder: Path, home: Path) -> str:
    """A folder as the user knows it."""
    if folder.is_relative_to(home):
        return folder.relative_to(home).as_posix()
    return str(folder)


def tops_of(home: Path, inventory: Inventory) -> list[Path]:
    """The folder of a data set, and the ones in it that may have the images of all splits."""
    tops = [home]
    for name, folder in inventory.subfolders(home).items():
        if name in IMAGE_FOLDERS:
            tops.append(folder)
    return tops


def image_folders(
    path: Path,
    home: Path,
    split: str,
    inventory: Inventory,
) -> list[Path]:
    """The folders that may have the images of a file, the most usual first.

    Folders that name the split of the file, such as train_images, come before the others.
    """
    tops = tops_of(home, inventory)
    above = path.parent.parent
    if above != home and above.is_relative_to(home):  # a data set in its own folder
        tops += tops_of(above, inventory)
    own = []
    for top in tops:
        for folder in inventory.subfolders(top).values():
            if split in splits_in(words_of(folder.name)):
                own.append(folder)
    words = {*words_of(relative_folder(path, home))}
    own.sort(key=lambda folder: words.isdisjoint(words_of(folder.name)))
    folders = []
    for folder in own:
        folders += [folder, folder / 'images', folder / 'data']
    folders += tops[1:]
    folders += [top / 'default' for top in tops]  # of CVAT
    folders.append(home)
    folders += [path.parent / 'images', path.parent / 'data', path.parent, above]
    return [x for x in dict.fromkeys(folders) if str(x) in inventory.folders]


def split_one(file: CocoFile, part: Split) -> Splits:
    """Both splits of the images of one file, and what says which is in which.

    Their folders do, if all are in one that names a split; else a hash of their names. Images in
    test/ are for validation where no others are.
    """
    images = part.inventory.images(part.images)
    stems = {stem_of(name, images) for name in file.image_names()}
    of_file = f', of {relative_folder(file.path, part.inventory.root)}'
    # The images of each word that names a split, and those with no word or both.
    train = defaultdict(set)
    val = defaultdict(set)
    others = list[str]()
    for stem in stems:
        found = dict[str, str]()
        for name in reversed(stem.split('/')[:-1]):
            found = found or splits_in(words_of(name))
        if len(found) != 1:
            others.append(stem)
        elif 'train' in found:
            train[found['train']].add(stem)
        else:
            val[found['val']].add(stem)
    hides = part.inventory.hides
    for word in filter(hides.search, [*val]) if hides else ():
        del val[word]
    if not train or not val or others:
        splits, described = split_by_hash(part, stems)
        return splits, described + of_file
    tests = sorted(word for word in val if word.startswith('test'))
    unused = tests if len(tests) < len(val) else []
    for word in unused:
        del val[word]
    said = ' and '.join([*sorted(train), *sorted(val)])
    if unused:
        said += f'; not {", ".join(unused)}'
    splits = {
        'train': replace(part, names=frozenset().union(*train.values())),
        'val': replace(part, names=frozenset().union(*val.values())),
    }
    return splits, f'the folders of the images ({said}){of_file}'


def check_unlabelled(part: Split, home: Path, listed: Set[Path | None]) -> None:
    """Refuse a folder such as val/ or images/val/ of which the only COCO file lists no image."""
    inventory = part.inventory
    for top in tops_of(home, inventory):
        for folder in inventory.subfolders(top).values():
            words = words_of(folder.name)
            word = splits_in(words).get('val', 'test')
            if word.startswith('test') or not {*words} - {word} <= USUAL_FOLDERS:
                continue
            others = inventory.below(folder, inventory.image_suffixes)
            if others and listed.isdisjoint(others):
                raise unlabelled_error(folder, part.source)


COCO = Format('coco', 'COCO', ('.json',), find_coco, read_coco)
