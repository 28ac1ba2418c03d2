"""The images of COCO files: their folder, and the splits that their folders name."""

import re
from collections.abc import Set
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

from .coco_files import USUAL_FOLDERS, CocoFile, splits_in, words_of
from .files import parts_of, without_suffix
from .inventory import Images, Inventory
from .objects import Split, printable_text
from .splits import SPLITS, Splits, split_by_hash, unlabelled_error

IMAGE_FOLDERS = ('images', 'data', 'jpegimages')
SAMPLE = 50  # names that are looked for in a folder of images


def part_of(file: CocoFile, home: Path, split: str, inventory: Inventory) -> Split:
    """The labels of a file, with the folder that has most of its images.

    Images are looked for by their names as they are, then anywhere below. A split's folder that has
    some is not left for a wider one, where another split may have an image of the same name.

    Args:
        home: folder of the data set.

    Raises:
        ValueError: it has no image, or they are in none of the usual folders.
    """
    path, names = file.path, file.image_names()
    if not names:
        what = 'no file_name of an image' if file.content['images'] else 'no image'
        raise ValueError(f'{path}: {what} in it')
    folders = image_folders(path, home, split, inventory)
    sample = names[:: max(1, len(names) // SAMPLE)]
    best, most = home, 0
    for is_below in (False, True):
        for folder in folders:
            if is_below:
                images = inventory.images(folder)
                found = [find_image(images, name) is not None for name in sample]
            else:
                found = [inventory.is_file(folder.joinpath(*parts_of(name))) for name in sample]
            if sum(found) > most:
                best, most = folder, sum(found)
        if most == len(sample) or (split and most):
            break
    if not most:
        looked = ', '.join(dict.fromkeys(relative_folder(place, home) for place in folders))
        name = printable_text(names[0])
        such = f'its images, such as {name:.200}, are in none of {looked} of {home}'
        raise ValueError(f'{path}: {such}, which has {inventory.suffixes_in(home)}')
    return Split(path, best, inventory=inventory)


def relative_folder(folder: Path, home: Path) -> str:
    """A folder as the user knows it."""
    return folder.relative_to(home).as_posix() if folder.is_relative_to(home) else str(folder)


def tops_of(home: Path, inventory: Inventory) -> list[Path]:
    """The folder of a data set, and the ones in it that may have the images of all splits."""
    folders = inventory.subfolders(home)
    return [home, *(folder for name, folder in folders.items() if name in IMAGE_FOLDERS)]


def image_folders(path: Path, home: Path, split: str, inventory: Inventory) -> list[Path]:
    """The folders that may have the images of a file, the most usual first.

    Folders that name the split of the file, such as train_images, come before the others.
    """
    tops, above = tops_of(home, inventory), path.parent.parent
    if above != home and above.is_relative_to(home):  # the data set is in a folder of its own
        tops += tops_of(above, inventory)
    words = {word for name in relative_folder(path, home).split('/') for word in words_of(name)}
    inner = [folder for top in tops for folder in inventory.subfolders(top).values()]
    own = [folder for folder in inner if split in splits_in(words_of(folder.name))]
    own.sort(key=lambda folder: words.isdisjoint(words_of(folder.name)))
    folders = [folder / name for folder in own for name in ('', 'images', 'data')]
    folders += [*tops[1:], *(top / 'default' for top in tops), home]  # default/ is CVAT's
    folders += [path.parent / name for name in ('images', 'data', '')]
    return [x for x in dict.fromkeys([*folders, above]) if str(x) in inventory.folders]


def find_image(images: Images, name: str) -> Path | None:
    """The file of an image's name: a path, or an address as Label Studio writes it."""
    # As in /data/local-files/?d=folder/a%20b.jpg.
    plain = unquote(re.split('[?#]', name.rpartition('?d=')[2])[0])
    return images.find(name) or (images.find(plain) if plain != name else None)


def stem_of(name: str, images: Images) -> str:
    """The path of an image without suffix; its name where it is not there."""
    file = find_image(images, name)
    return images.stem_of(file) if file else without_suffix('/'.join(parts_of(name)))


def split_one(file: CocoFile, part: Split) -> Splits:
    """Both splits of the images of one file, and what says which is in which.

    Their folders do, if all are in one that names a split; else a hash of their names. Images in
    test/ are for validation where no others are.
    """
    images = part.inventory.images(part.images)
    stems = {stem_of(name, images) for name in file.image_names()}
    of_file = f', of {relative_folder(file.path, part.inventory.root)}'
    word_of = dict[str, tuple[str, str]]()
    for stem in stems:
        named = [splits_in(words_of(name)) for name in reversed(stem.split('/')[:-1])]
        found = next(filter(None, named), {})
        word_of[stem] = next(iter(found.items())) if len(found) == 1 else ('', '')
    train, val, others = (
        sorted({word for of, word in word_of.values() if of == split}) for split in (*SPLITS, '')
    )
    if train and val and not others:
        tests = [word for word in val if word.startswith('test')]
        unused = tests if len(tests) < len(val) else []
        said = ' and '.join(word for word in (*train, *val) if word not in unused)
        said += f'; not {", ".join(unused)}' if unused else ''
        names: dict[str, set[str]] = {split: set() for split in SPLITS}
        for stem, (split, word) in word_of.items():
            if word not in unused:
                names[split].add(stem)
        splits = {split: replace(part, names=frozenset(some)) for split, some in names.items()}
        return splits, f'the folders of the images ({said}){of_file}'
    splits, described = split_by_hash(part, stems)
    return splits, described + of_file


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
