"""Folders of a DOTA data set: label files and images, for all images or for each split."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from ..classes import CLASSES_FILE
from .files import IMAGE_SUFFIXES, Images, list_files, subfolders
from .label_files import labelled_stems, stems_of, with_unlabelled
from .objects import Labels, Report
from .splits import SPLITS, Splits, by_hash, in_folders, only

LABEL_FOLDERS = re.compile(r'labeltxt.*|annfiles')
HORIZONTAL = re.compile(r'hbb|task2|reclabel', re.I)  # folders of the same objects as upright boxes


def splits_in(root: Path) -> Splits | None:
    """Both splits of the data set in a folder, or in one of the folders in it; None for none.

    Raises:
        ValueError: several data sets or folders of labels, or labels of only one split.
    """
    if found := splits_at(root):
        return found
    below = {path: found for path in subfolders(root).values() if (found := splits_at(path))}
    return only(below, root, 'DOTA')


def splits_at(home: Path) -> Splits | None:
    """Both splits in a folder: in folders of their names, else by a hash."""
    homes = [home, *filter(None, [subfolders(home).get('images')])]
    found = in_folders(lambda name: labels_of_split(home, name), homes)
    if len(found) == len(SPLITS):
        return found, 'folder'
    together = found.get('train') or labels_in(home)
    if together is None:
        return None
    labelled = stems_in(together)
    splits, described = by_hash(together, labelled)
    return with_unlabelled(splits, labelled), described


def labels_in(home: Path) -> Labels | None:
    """The label files of all images, and the folder of the images."""
    source = label_folder(home)
    images = subfolders(home).get('images', home)
    return Labels(source, images) if source and list_files(images, IMAGE_SUFFIXES) else None


def labels_of_split(home: Path, name: str) -> Labels | None:
    """The label files and images of a split: train/labelTxt, labelTxt/train, train/images, ..."""
    folders, together = subfolders(home), labels_in(home)
    source = label_folder(folders[name]) if name in folders else None
    if source is None and together:
        source = subfolders(together.source).get(name)
    images = image_folder(home, name)
    if source is not None and images is None and 'images' in folders:  # images of all splits
        labels = Labels(source, folders['images'])
        return replace(labels, names=frozenset(stems_in(labels)))
    if source is not None:
        return Labels(source, images) if images else None
    if images is None or together is None or together.images not in images.parents:
        return None
    files = list_files(images, IMAGE_SUFFIXES)  # of images/train, with labels of all in labelTxt
    return Labels(together.source, together.images, frozenset(map(together.path_of, files)))


def image_folder(home: Path, name: str) -> Path | None:
    """The folder of a split's images, which may have inner folders."""
    folders = subfolders(home)
    places = [subfolders(folders['images']).get(name)] if 'images' in folders else []
    if name in folders:
        places += [subfolders(folders[name]).get('images'), folders[name]]
    return next((x for x in places if x is not None and list_files(x, IMAGE_SUFFIXES)), None)


def label_folder(home: Path) -> Path | None:
    """The folder of label files in a folder.

    Raises:
        ValueError: several, such as labels of two versions of DOTA.
    """
    named = [path for name, path in subfolders(home).items() if LABEL_FOLDERS.fullmatch(name)]
    if len(found := [path for path in named if label_texts(path)]) > 1:
        names = ' and '.join(map(str, found))
        raise ValueError(f'{names} have label files: leave the folder that is to be used')
    return next(iter(found), None)


def label_texts(source: Path) -> list[Path]:
    """The label files in a folder, without files of upright boxes if there are others."""
    files = [path for path in list_files(source, ('.txt',)) if path.name.lower() != CLASSES_FILE]
    return [
        path for path in files if not HORIZONTAL.search(str(path.parent.relative_to(source)))
    ] or files


def texts_of(labels: Labels) -> dict[str, Path]:
    """The label files by their paths without suffix."""
    return stems_of(label_texts(labels.source), labels.source)


def stems_in(labels: Labels) -> set[str]:
    """The images that have a label file, and label files without an image, as paths of images."""
    stems = labelled_stems(texts_of(labels), Images(labels, Report()))
    return {stem for stem in stems if labels.has(stem)}
