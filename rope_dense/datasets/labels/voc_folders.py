"""Folders of a Pascal VOC data set: XML files, images, and lists of the splits."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice, product
from pathlib import Path

from .files import (
    IMAGE_SUFFIXES,
    Images,
    list_files,
    read_text,
    read_xml,
    subfolders,
    walk,
    without_suffix,
)
from .label_files import labelled_stems, stems_of
from .objects import Labels, Report
from .splits import SPLIT_NAMES, SPLITS, Splits, by_hash, in_folders, only, unnamed

LABEL_FOLDERS = ('annotations', 'annotation', 'xmls', 'xml', 'labels', 'label')
IMAGE_FOLDERS = ('jpegimages', 'images', 'image', 'imgs', 'img', 'jpgimages', 'pngimages')
LOOKED_AT = 5  # files that decide whether a folder has annotations of Pascal VOC
PER_CLASS = re.compile(r'\s+(-1|0|1)$')  # the last word in lists of one class
TWO_PATHS = re.compile(rf'^(\S.*(?:{"|".join(map(re.escape, IMAGE_SUFFIXES))}))\s.*\.xml$', re.I)


def splits_in(root: Path) -> Splits | None:
    """Both splits of the data set in a folder, or in a folder in it; None for no data set.

    The lists in ImageSets/Main, or folders of the splits in or around the folders of labels and
    images, say which image is in which split; else a hash does.

    Raises:
        ValueError: several data sets, lists that name no image, or labels of only one split.
    """
    home, together = voc_home(root)
    if found := splits_at(home, together):
        return found
    if labels := beside_images(root):
        return by_hash(labels, all_stems(labels))
    folders = subfolders(root).values()
    below = {path: found for path in folders if (found := splits_at(path, labels_in(path)))}
    return only(below, root, 'VOC')


def splits_at(home: Path, together: Labels | None) -> Splits | None:
    """Both splits in a folder, by lists, folders or a hash.

    Args:
        together: the labels of all images, or of those that no folder of a split has.
    """
    if together and (found := by_lists(home, together)):
        return found
    if found := by_split_folders(home, together):
        return found
    return by_hash(together, all_stems(together)) if together else None


def voc_home(root: Path) -> tuple[Path, Labels | None]:
    """The folder of the data set, VOC2012 or the like below the root or the root, and its labels.

    Raises:
        ValueError: several of them.
    """
    if labels := labels_in(root):
        return root, labels
    depths = ('VOC20*', '*/VOC20*', '*/*/VOC20*')
    homes = [path for depth in depths for path in sorted(root.glob(depth)) if path.is_dir()]
    found = {path: labels for path in homes if (labels := labels_in(path))}
    labels = only(found, root, 'VOC')
    return next(iter(found), root), labels


def labels_in(home: Path) -> Labels | None:
    """The folders of XML files and of images in a folder, or the folder itself if it has both."""
    folders = subfolders(home)
    images = next((folders[name] for name in IMAGE_FOLDERS if name in folders), None)
    for name in LABEL_FOLDERS:
        if name in folders and has_voc(walk(folders[name], ('.xml',))):
            return Labels(folders[name], images or home)
    if images and has_voc(walk(images, ('.xml',))):
        return Labels(images, images)
    for folder in unnamed(folders, {*LABEL_FOLDERS, *IMAGE_FOLDERS}):
        if images and has_voc(walk(folder, ('.xml',))):
            return Labels(folder, images)
    names = sorted(name for name in os.listdir(home) if name.lower().endswith('.xml'))
    directly = [os.path.join(home, name) for name in names if not name.startswith('.')]
    return Labels(home, home) if has_voc(directly) else None


def beside_images(root: Path) -> Labels | None:
    """The root, if folders below it have images with an XML file beside each, and no split."""
    files = list_files(root, ('.xml',))
    folders = {part.lower() for path in files for part in path.relative_to(root).parts[:-1]}
    if folders & SPLIT_NAMES or not has_voc(map(str, files)):
        return None
    labels = Labels(root, root)
    images = Images(labels, Report())
    stems = stems_of(files, root)
    return labels if all(x in images.by_stem or images.alike(x) for x in stems) else None


def has_voc(files: Iterable[str]) -> bool:
    """Return whether one of the first XML files is an annotation of Pascal VOC.

    Raises:
        ValueError: none of them can be read.
    """
    problems, is_other = [], False
    for path in islice(files, LOOKED_AT):
        try:
            if read_xml(Path(path)).tag == 'annotation':
                return True
            is_other = True
        except ValueError as problem:
            problems.append(problem)
    if problems and not is_other:
        raise problems[0]
    return False


def by_lists(home: Path, labels: Labels) -> Splits | None:
    """The splits by trainval.txt, train.txt, ... in ImageSets/Main, ImageSets or the folder itself.

    Lists of images without labels, such as VOC2012's test images, are not taken. A part of the
    training list is for validation where no other list is.

    Raises:
        ValueError: there are lists, but none of labelled training images.
    """
    if not (files := lists_in(home)):
        return None
    images = Images(labels, Report())
    stems = stems_in(labels, images)
    lists = {name: listed(path, images, labels) for name, path in files.items()}
    labelled = {name for name, names in lists.items() if names & stems}
    for train, val in PAIRS:
        if train in labelled and val in labelled:
            splits = {'train': lists[train], 'val': lists[val]}
            parts = {split: replace(labels, names=names) for split, names in splits.items()}
            return parts, f'ImageSets ({files[train].name}, {files[val].name})'
    for name in TRAINING:
        if name in labelled:
            parts, described = by_hash(labels, lists[name])
            return parts, f'{files[name].name} and {described}'
    names = ', '.join(str(path.relative_to(home)) for path in files.values())
    raise ValueError(
        f'{home} has {names}, but no list of training images (train.txt) with labels in '
        f'{labels.source}'
    )


PAIRS = (('trainval', 'test'), *product((*SPLITS['train'], 'trainval'), SPLITS['val']))
TRAINING = ('trainval', *SPLITS['train'], 'default')  # CVAT exports default.txt


def lists_in(home: Path) -> dict[str, Path]:
    """The lists of a data set by name, from the first folder that has some."""
    known = {*TRAINING, *SPLITS['val']}
    for place in (home / 'ImageSets' / 'Main', home / 'ImageSets', home):
        files = {path.stem.lower(): path for path in sorted(place.glob('*.txt'))}
        found = {name: path for name, path in files.items() if name in known}
        if found and (place != home or any(name in TRAINING for name in found)):
            return found
    return {}


def listed(path: Path, images: Images, labels: Labels) -> frozenset[str]:
    """The images in a list, as paths in their folder without suffix; also those not there.

    A line is a name or path, with a suffix or without, and may end with the number of a list
    of one class or with the path of the XML file.
    """
    names = set()
    for line in read_text(path).splitlines():
        if not (name := line.strip()):
            continue
        short = PER_CLASS.sub('', name)
        if match := TWO_PATHS.match(name):
            name = short = match[1]
        if file := images.find(name) or images.find(short):
            names.add(labels.path_of(file))
        else:
            names.add(without_suffix(short))
    return frozenset(names)


def by_split_folders(home: Path, together: Labels | None) -> Splits | None:
    """The splits by folders such as train/, around the folders of labels and images or in them.

    Raises:
        ValueError: labels for validation only, or images for validation without labels.
    """
    around, is_apart = subfolders(home), together is not None and together.source != home
    sources = subfolders(together.source) if together and is_apart else {}
    images = subfolders(together.images) if together and is_apart else {}

    def find(name: str) -> Labels | None:
        if name in around and (found := labels_in(around[name])):
            return replace(found, names=frozenset(all_stems(found)))
        if together is None:
            return None
        return labels_within(together, sources.get(name), images.get(name))

    splits = in_folders(find, [home, *([together.images] if together and is_apart else [])])
    if len(splits) == len(SPLITS):
        return splits, 'folder'
    return by_hash(splits['train']) if splits else None


def labels_within(together: Labels, source: Path | None, images: Path | None) -> Labels | None:
    """The labels of a split that has a folder of labels, of images or of both."""
    if source and has_voc(walk(source, ('.xml',))):
        found = Labels(source, images or together.images)
        stems = all_stems(found) if images else stems_in(found, Images(found, Report()))
        return replace(found, names=frozenset(stems))
    if images and together.source != together.images:
        files = list_files(images, IMAGE_SUFFIXES)
        return replace(together, names=frozenset(together.path_of(file) for file in files))
    return None


def all_stems(labels: Labels) -> set[str]:
    """The images with and without labels, as ``stems_in``."""
    images = Images(labels, Report())
    return stems_in(labels, images) | images.by_stem.keys()


def stems_in(labels: Labels, images: Images) -> set[str]:
    """The images with an XML file as paths without suffix; the file's path if no image is there."""
    return labelled_stems(xml_files(labels), images, named_image)


def xml_files(labels: Labels) -> dict[str, Path]:
    """The XML files of labels by their paths without suffix."""
    return stems_of(list_files(labels.source, ('.xml',)), labels.source)


def named_image(path: Path, stem: str, images: Images) -> Path | None:
    """The image whose ``folder`` and ``filename`` an annotation has."""
    root = read_xml(path)
    name = (root.findtext('filename') or '').strip()
    return images.find(f'{(root.findtext("folder") or "").strip()}/{name}') if name else None
