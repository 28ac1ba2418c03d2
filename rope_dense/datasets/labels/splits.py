"""The images for training and for validation, by folders or by a hash of their names."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from .files import IMAGE_SUFFIXES, subfolders, walk
from .objects import Labels

Splits = tuple[dict[str, Labels], str]  # and what says which image is in which, in words
Found = TypeVar('Found')
SPLITS = {
    'train': ('train2017', 'train', 'training'),
    'val': ('val2017', 'val', 'valid', 'validation', 'test'),
}
SPLIT_NAMES = {*SPLITS['train'], *SPLITS['val']}
WORDS = {'train': 'training', 'val': 'validation'}
VAL_PART = 5  # every fifth image is for validation where nothing says which
BY_HASH = f'a hash of the name (one image of {VAL_PART} for validation)'


def by_folder(find: Callable[[str], Labels | None]) -> Splits | None:
    """The splits by folders or subsets of their common names; None without one for training.

    Where there are labels of a training split only, a part of its images is for validation.

    Args:
        find: returns the labels of a split by a name such as 'train' or 'valid'; None for none.
    """
    splits = found_by_name(find)
    if len(splits) == len(SPLITS):
        return splits, 'folder'
    return by_hash(splits['train']) if 'train' in splits else None


def found_by_name(find: Callable[[str], Labels | None]) -> dict[str, Labels]:
    """The labels of each split, by the first of its common names that has some."""
    found = {split: next(filter(None, map(find, names)), None) for split, names in SPLITS.items()}
    return {split: labels for split, labels in found.items() if labels}


def unnamed(folders: Mapping[str, Path], names: Collection[str]) -> list[Path]:
    """Folders, by their names in lower case, that may have labels under a name of their own.

    Args:
        names: usual names of folders for labels and images, which were tried.
    """
    return [path for name, path in folders.items() if name not in {*names, *SPLIT_NAMES}]


def in_folders(find: Callable[[str], Labels | None], homes: Iterable[Path]) -> dict[str, Labels]:
    """The labels of each split, or of the training split only; none for no folders of splits.

    Args:
        homes: may have a folder val/ of images.

    Raises:
        ValueError: labels for validation only, or images for validation without labels.
    """
    splits = found_by_name(find)
    if 'train' not in splits and 'val' in splits:
        source = splits['val'].source
        raise ValueError(f'{source} has labels for validation, and no train/ beside it has labels')
    if 'train' in splits and 'val' not in splits:
        check_unlabelled(homes, splits['train'].source)
    return splits


def check_unlabelled(homes: Iterable[Path], source: Path) -> None:
    """Refuse images in val/ or the like, where only `source` has labels; test/ may have some."""
    names = [name for name in SPLITS['val'] if name != 'test']
    for folders in map(subfolders, homes):
        refuse_images((folders[name] for name in names if name in folders), source)


def only(found: Mapping[Path, Found], root: Path, title: str) -> Found | None:
    """The only data set of several places; None for none.

    Raises:
        ValueError: several.
    """
    if len(found) > 1:
        names = ', '.join(map(str, found))
        raise ValueError(
            f'{root} has several {title} data sets: set own.data_root to one of {names}'
        )
    return next(iter(found.values()), None)


def by_hash(labels: Labels, stems: Collection[str] | None = None) -> Splits:
    """Both splits of one folder of labels by a hash of each name: more images move none.

    At least one image is in each, also of few images.

    Args:
        stems: paths of the labelled images, in their folder and without suffix; None for the names
            of the labels, with images that are not there.

    Raises:
        ValueError: less than two images.
    """
    stems = labels.names or () if stems is None else stems
    if len(stems) < 2:
        raise ValueError(
            f'{labels.source}: {len(stems)} labelled image, so none for validation: put '
            'training and validation images in train/ and val/'
        )
    by_digest = sorted(stems, key=digest_of)
    val = {stem for stem in stems if is_for_validation(stem)} or {by_digest[0]}
    val -= {by_digest[-1]} if len(val) == len(stems) else set()
    parts = {'train': frozenset(stems) - val, 'val': frozenset(val)}
    return {split: replace(labels, names=names) for split, names in parts.items()}, BY_HASH


def refuse_images(folders: Iterable[Path], source: Path) -> None:
    """Raise ValueError if a folder for validation has images, but no labels as `source` has."""
    for folder in folders:
        if any(walk(folder, IMAGE_SUFFIXES)):
            raise ValueError(f'{folder} has images, but no labels as {source} has')


def is_for_validation(stem: str) -> bool:
    """Return whether an image of this path is for validation where nothing says which."""
    return digest_of(stem)[0] % VAL_PART == 0


def digest_of(stem: str) -> bytes:
    """A digest of the path of an image, which more images do not change."""
    return hashlib.sha256(stem.encode()).digest()
