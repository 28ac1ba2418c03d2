"""The image of each label file where every image has a file of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from .files import Images
from .objects import NO_IMAGE, Labels, Report

Find = Callable[[Path, str, Images], Path | None]  # the image of a label file, by its path or stem


def stems_of(files: Iterable[Path], folder: Path) -> dict[str, Path]:
    """Files by their paths in a folder, without suffix."""
    start = len(os.path.join(folder, '')) if folder.parts else 0
    return {os.path.splitext(str(path)[start:])[0]: path for path in files}


def images_of(files: Mapping[str, Path], images: Images, *named: Find) -> dict[str, str]:
    """The image of each label file: of its path, else of its name, else one that it names.

    A path may be in another case or Unicode form. No image is of two files. Where the images have
    the same folders as the labels, an image of the same name in another folder is another image.

    Args:
        files: by their paths without suffix.

    Returns:
        Paths of images by paths of label files, without suffixes.
    """
    found = {stem: stem for stem in files if stem in images.by_stem}
    taken = set(found)
    folders = {os.path.dirname(stem) for stem in images.by_stem}  # with '' for the folder itself
    for find in (same_path, same_name, *named):
        for stem, path in files.items():
            if stem in found or (file := find(path, stem, images)) is None:
                continue
            image = images.labels.path_of(file)
            if images.by_stem.get(image) != file:  # a.png beside a.jpg, which is taken
                continue
            is_same = find is same_path or file.stem != path.stem
            if image not in taken and (is_same or os.path.dirname(stem) not in folders):
                found[stem] = image
                taken.add(image)
    return found


def same_path(path: Path, stem: str, images: Images) -> Path | None:
    """The image of a.jpg.xml, or the only one whose path has another case or Unicode form."""
    same = images.alike(stem)
    return images.by_path.get(stem) or (images.by_stem[same[0]] if len(same) == 1 else None)


def same_name(path: Path, stem: str, images: Images) -> Path | None:
    """The only image of the name of a label file."""
    same = images.by_name.get(path.stem, ())
    return same[0] if len(same) == 1 else None


def labelled_stems(files: Mapping[str, Path], images: Images, *named: Find) -> set[str]:
    """The images that have a label file; the path of the file where no image is there."""
    owned = images_of(files, images, *named)
    return {owned.get(stem, stem) for stem in files}


def with_unlabelled(splits: Mapping[str, Labels], labelled: set[str]) -> dict[str, Labels]:
    """Splits with their images that have no label file, each once: the reader counts them.

    Args:
        labelled: images of all splits, and of others, that have a label file.
    """
    found = dict(splits)
    for split, labels in splits.items():
        beside = [x.names or frozenset() for x in found.values() if x.images == labels.images]
        rest = Images(labels, Report()).by_stem.keys() - labelled.union(*beside)
        found[split] = replace(labels, names=frozenset(rest).union(labels.names or ()))
    return found


def reason_without(
    stem: str, path: Path, images: Images, taken: Collection[str], *named: Find
) -> str:
    """The reason to leave out a label file that has no image of its own.

    Args:
        taken: paths of the images that have another label file.
    """
    found = (find(path, stem, images) for find in (same_path, same_name, *named))
    is_second = any(file and images.labels.path_of(file) in taken for file in found)
    return 'object of an image that has another label file' if is_second else NO_IMAGE
