"""Which image is for training and which for validation."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from dataclasses import replace

from .files import IMAGE_SUFFIXES, list_files
from .objects import Labels

SPLITS = {
    'train': ('train2017', 'train', 'training'),
    'val': ('val2017', 'val', 'valid', 'validation', 'test'),
}
WORDS = {'train': 'training', 'val': 'validation'}
VAL_PART = 5  # every fifth image is for validation where nothing says which
BY_HASH = f'a hash of the name (one image of {VAL_PART} for validation)'


def by_folder(find: Callable[[str], Labels | None]) -> tuple[dict[str, Labels], str] | None:
    """The labels of both splits, and what says which is which, from the common names of splits.

    Where there are labels of a training split only, a part of its images is for validation.

    Args:
        find: returns the labels of a split by a name such as 'train' or 'valid'; None for none.
    """
    splits: dict[str, Labels] = {}
    for split, names in SPLITS.items():
        found = next((labels for name in names if (labels := find(name))), None)
        if found is not None:
            splits[split] = found
    if len(splits) == len(SPLITS):
        return splits, 'folder'
    return by_hash(splits['train']) if 'train' in splits else None


def by_hash(labels: Labels, stems: Collection[str] | None = None) -> tuple[dict[str, Labels], str]:
    """Both splits of one folder of labels by a hash of each name: more images move none.

    At least one image is in each, also of few images.

    Args:
        stems: paths of the labelled images, in their folder and without suffix; None for all of
            the labels' names, with those that are not there, or of the folder.

    Raises:
        ValueError: less than two images.
    """
    if stems is None:
        files = list_files(labels.images, IMAGE_SUFFIXES)
        stems = labels.names or {labels.path_of(file) for file in files}
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


def is_for_validation(stem: str) -> bool:
    """Whether an image of this path is for validation where nothing says which."""
    return digest_of(stem)[0] % VAL_PART == 0


def digest_of(stem: str) -> bytes:
    """A digest of the path of an image, which more images do not change."""
    return hashlib.sha256(stem.encode()).digest()


def labelled_stems(labels: Labels, suffix: str) -> set[str]:
    """The images that have a file of labels of the same path or name, as paths without suffix."""
    files = list_files(labels.source, (suffix,))
    paths = {file.relative_to(labels.source).with_suffix('').as_posix() for file in files}
    names = {file.stem for file in files}
    images = list_files(labels.images, IMAGE_SUFFIXES)
    stems = {labels.path_of(image): image.stem for image in images}
    return {path for path, name in stems.items() if path in paths or name in names}
