"""The images of COCO files: their folder, and the splits that their folders name."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

from .coco_files import USUAL_FOLDERS, CocoFile, check_coco, head, splits_in, words_of
from .files import IMAGE_SUFFIXES, Images, list_files, subfolders, suffixes_in, without_suffix
from .objects import Labels, Report
from .splits import SPLITS, by_hash, refuse_images

IMAGE_FOLDERS = ('images', 'data', 'jpegimages')
SAMPLE = 50  # names that are looked for in a folder of images


def coco_labels(root: Path, split: str, ann_file: str) -> Labels:
    """The labels of a COCO file that the user names.

    Args:
        root: folder of the data, which has the images.
        split: 'train' or 'val', after which the folder of the images may be named.
        ann_file: the file, below `root` or absolute.

    Raises:
        ValueError: no such file, it is no COCO file, or its images are not there.
    """
    path = root / ann_file
    if not path.is_file():
        raise ValueError(f'{path}: no such file; check own.{split}')
    content = head(path)
    check_coco(path, content)
    return labels_of(CocoFile(path, content['images']), root, split)


def labels_of(file: CocoFile, home: Path, split: str) -> Labels:
    """The labels of a file, with the folder of its images.

    Raises:
        ValueError: it has no image, or they are in none of the usual folders.
    """
    path, names = file.path, file.image_names()
    if not names:
        what = 'no file_name of an image' if file.images else 'no image'
        raise ValueError(f'{path}: {what} in it')
    sample = names[:: max(1, len(names) // SAMPLE)]
    folders = image_folders(path, home, split)
    if (folder := best_folder(sample, folders, is_split=bool(split), path=path)) is None:
        looked = ', '.join(dict.fromkeys(relative(place, home) for place in folders))
        raise ValueError(
            f'{path}: its images, such as {names[0]}, are in none of {looked} of {home}, which has '
            f'{suffixes_in(home)}'
        )
    return Labels(path, folder)


def relative(folder: Path, home: Path) -> str:
    """A folder as the user knows it."""
    return folder.relative_to(home).as_posix() if folder.is_relative_to(home) else str(folder)


def tops_of(home: Path) -> list[Path]:
    """The folder of a data set, and the ones in it that may have the images of all splits."""
    return [home, *(folder for name, folder in subfolders(home).items() if name in IMAGE_FOLDERS)]


def image_folders(path: Path, home: Path, split: str) -> list[Path]:
    """The folders that may have the images of a file, the most usual first.

    Folders that name the split of the file, such as train_images, come before the others.
    """
    tops, above = tops_of(home), path.parent.parent
    if above != home and above.is_relative_to(home):  # the data set is in a folder of its own
        tops += tops_of(above)
    words = {word for name in relative(path, home).split('/') for word in words_of(name)}
    own = [
        (words.isdisjoint(words_of(folder.name)), folder)
        for top in tops
        for folder in subfolders(top).values()
        if split in splits_in(words_of(folder.name))
    ]
    folders = [
        place
        for _, folder in sorted(own, key=lambda one: one[0])
        for place in (folder, *(folder / name for name in ('images', 'data')))
    ]
    beside = [path.parent / name for name in ('images', 'data', '')]
    defaults = [top / 'default' for top in tops]  # CVAT's
    folders += [*tops[1:], *defaults, home, *beside, path.parent.parent]
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def best_folder(
    sample: Sequence[str], folders: Sequence[Path], *, is_split: bool, path: Path
) -> Path | None:
    """The folder that has most of the named images; None if none has any.

    Names are looked for as they are, then anywhere below. A split's folder that has some is not
    left for a wider one, where another split may have an image of the same name.
    """

    def whole(folder: Path) -> int:
        return sum(os.path.isfile(folder / '/'.join(parts_of(name))) for name in sample)

    def anywhere(folder: Path) -> int:
        images = Images(Labels(path, folder), Report())
        return sum(find_image(images, name) is not None for name in sample)

    best: tuple[int, Path | None] = 0, None
    for count in (whole, anywhere):
        for folder in folders:
            if (number := count(folder)) > best[0]:
                best = number, folder
        if best[0] == len(sample) or (is_split and best[0]):
            break
    return best[1]


def parts_of(name: str) -> list[str]:
    """The parts of a path, of any system, without '..'."""
    return [part for part in re.split(r'[\\/]', name) if part not in ('', '.', '..')]


def find_image(images: Images, name: str) -> Path | None:
    """The file of an image's name: a path, or an address as Label Studio writes it."""
    if found := images.find(name):
        return found
    plain = unquote(re.sub(r'.*\?d=|[?#].*', '', name))  # /data/local-files/?d=folder/a%20b.jpg
    return images.find(plain) if plain != name else None


def stem_of(name: str, images: Images) -> str:
    """The path of an image without suffix; its name where it is not there."""
    file = find_image(images, name)
    return images.labels.path_of(file) if file else without_suffix('/'.join(parts_of(name)))


def images_of(files: Iterable[tuple[CocoFile, Labels]]) -> tuple[set[Path], list[str]]:
    """The images that COCO files list, and the names of others in the folders of these."""
    there, listed = set[Path](), set[Path]()
    for file, labels in files:
        images = Images(labels, Report())
        there |= {*images.by_path.values()}
        listed |= {found for name in file.image_names() if (found := find_image(images, name))}
    return listed, sorted(path.name for path in there - listed)


def check_unlabelled(home: Path, source: Path, listed: set[Path]) -> None:
    """Raise ValueError if a folder such as val/ or images/val/ has only images without labels.

    Args:
        source: the only COCO file.
        listed: its images.
    """
    for folder in (place for top in tops_of(home) for place in subfolders(top).values()):
        words = words_of(folder.name)
        word = splits_in(words).get('val', 'test')
        is_for_validation = not word.startswith('test') and {*words} - {word} <= USUAL_FOLDERS
        if is_for_validation and listed.isdisjoint(list_files(folder, IMAGE_SUFFIXES)):
            refuse_images([folder], source)


def split_images(file: CocoFile, labels: Labels) -> tuple[dict[str, Labels], str]:
    """Both splits of the images of one file, and what says which is in which.

    Their folders do, if all are in one that names a split; else a hash of their names.
    """
    images = Images(labels, Report())
    stems = {stem_of(name, images) for name in file.image_names()}
    splits, described = by_their_folders(labels, stems) or by_hash(labels, stems)
    # The reader counts an object of no image in one split only.
    return {k: replace(part, options=dict(split=k)) for k, part in splits.items()}, described


def by_their_folders(
    labels: Labels, stems: Collection[str]
) -> tuple[dict[str, Labels], str] | None:
    """The splits by the folders of images: train/a.jpg; None if one is in no folder of a split.

    Images in test/ are for validation where no others are.
    """
    groups: dict[str, dict[str, set[str]]] = {split: {} for split in SPLITS}
    for stem in stems:
        folders = [splits_in(words_of(name)) for name in stem.split('/')[:-1]]
        if len(found := next(filter(None, reversed(folders)), {})) != 1:
            return None
        ((split, word),) = found.items()
        groups[split].setdefault(word, set()).add(stem)
    if not all(groups.values()):
        return None
    tests = {word for word in groups['val'] if word.startswith('test')}
    unused = tests if tests < groups['val'].keys() else set()
    for word in unused:
        del groups['val'][word]
    names = ' and '.join(word for words in groups.values() for word in words)
    said = f'the folders of the images ({names}{"; not " + ", ".join(unused) if unused else ""})'
    parts = {split: frozenset().union(*words.values()) for split, words in groups.items()}
    return {split: replace(labels, names=names) for split, names in parts.items()}, said
