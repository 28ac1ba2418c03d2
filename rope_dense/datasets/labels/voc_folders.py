"""Folders of a Pascal VOC data set: XML files, images, and lists of the splits."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from .files import (
    IMAGE_SUFFIXES,
    Images,
    list_files,
    read_text,
    read_xml,
    subfolders,
    without_suffix,
)
from .objects import Labels, Report
from .splits import SPLITS, by_folder, by_hash

LABEL_FOLDERS = ('annotations', 'annotation', 'xmls', 'xml', 'labels', 'label')
IMAGE_FOLDERS = ('jpegimages', 'images', 'image', 'imgs', 'img', 'jpgimages', 'pngimages')
LOOKED_AT = 5  # files that decide whether a folder has annotations of Pascal VOC
PER_CLASS = re.compile(r'\s+(-1|0|1)$')  # the last word in lists of one class
TWO_PATHS = re.compile(rf'^(\S.*(?:{"|".join(map(re.escape, IMAGE_SUFFIXES))}))\s.*\.xml$', re.I)


def splits_in(root: Path) -> tuple[dict[str, Labels], str] | None:
    """Both splits of a data set, and what says which image is in which; None for no data set.

    The lists in ImageSets/Main, or folders of the splits within or around those of labels and
    images, say it; else a hash does.

    Raises:
        ValueError: several data sets, lists that name no image, or an image for one split only.
    """
    home, together = voc_home(root)
    if together and (found := by_lists(home, together)):
        return found
    if found := by_folder(lambda name: labels_of_split(home, together, name)):
        return found
    if together is None and (together := beside_images(home)) is None:
        return None
    return by_hash(together, all_stems(together))


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
    if len(found) > 1:
        names = ', '.join(map(str, found))
        raise ValueError(f'{root} has several VOC data sets: set own.data_root to one of {names}')
    return next(iter(found.items()), (root, None))


def labels_in(home: Path) -> Labels | None:
    """The folders of XML files and of images in a folder, or the folder itself if it has both."""
    folders = subfolders(home)
    images = next((folders[name] for name in IMAGE_FOLDERS if name in folders), None)
    for name in LABEL_FOLDERS:
        if name in folders and has_voc(list_files(folders[name], ('.xml',))):
            return Labels(folders[name], images or home)
    if images and has_voc(list_files(images, ('.xml',))):
        return Labels(images, images)
    directly = [path for path in list_files(home, ('.xml',)) if path.parent == home]
    return Labels(home, home) if has_voc(directly) else None


def beside_images(root: Path) -> Labels | None:
    """The root, if folders below it have images with an XML file beside each, and no split."""
    files = list_files(root, ('.xml',))
    folders = {part.lower() for path in files for part in path.relative_to(root).parts[:-1]}
    if folders & {*SPLITS['train'], *SPLITS['val']} or not has_voc(files):
        return None
    labels = Labels(root, root)
    images = Images(labels, Report())
    return labels if all(stem_of(path, labels) in images.by_stem for path in files) else None


def has_voc(files: Sequence[Path]) -> bool:
    """Return whether one of the first XML files is an annotation of Pascal VOC.

    Raises:
        ValueError: none of them can be read.
    """
    problems = []
    for path in files[:LOOKED_AT]:
        try:
            if read_xml(path).tag == 'annotation':
                return True
        except ValueError as problem:
            problems.append(problem)
    if problems and len(problems) == len(files[:LOOKED_AT]):
        raise problems[0]
    return False


def by_lists(home: Path, labels: Labels) -> tuple[dict[str, Labels], str] | None:
    """The splits by trainval.txt, train.txt, ... in ImageSets/Main, ImageSets or the folder itself.

    Lists of images without labels, such as VOC2012's test images, are not taken. A part of the
    training list is for validation where no other list is.

    Raises:
        ValueError: there are lists, but none of labelled training images.
    """
    if not (files := lists_in(home)):
        return None
    images, stems = Images(labels, Report()), stems_in(labels)
    lists = {name: listed(path, images, labels) for name, path in files.items()}
    shares = {name: len(names & stems) / max(len(names), 1) for name, names in lists.items()}
    for least in (0.5, 0):
        for train, val in PAIRS:
            if min(shares.get(train, 0), shares.get(val, 0)) > least:
                splits = {'train': lists[train], 'val': lists[val]}
                parts = {split: replace(labels, names=names) for split, names in splits.items()}
                return parts, f'ImageSets ({files[train].name}, {files[val].name})'
    for name in TRAINING:
        if shares.get(name):
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

    A line is a name or path, with a suffix or without, in quotes or not, and may end with the
    number of a list of one class or with the path of the XML file.
    """
    names = set()
    for line in read_text(path).splitlines():
        if not (name := line.strip().strip('"').strip()):
            continue
        short = PER_CLASS.sub('', name)
        if match := TWO_PATHS.match(name):
            name = short = match[1]
        if file := images.find(name) or images.find(short):
            names.add(labels.path_of(file))
        else:
            names.add(without_suffix(short))
    return frozenset(names)


def labels_of_split(home: Path, together: Labels | None, name: str) -> Labels | None:
    """The labels in the folder of a split, or in folders of the split for labels and images."""
    if (folder := subfolders(home).get(name)) and (found := labels_in(folder)):
        return replace(found, names=frozenset(all_stems(found)))
    if together is None or together.source == home:
        return None
    source = subfolders(together.source).get(name)
    images = subfolders(together.images).get(name)
    if source and not has_voc(list_files(source, ('.xml',))):
        source = None
    if source and images:
        found = Labels(source, images)
        return replace(found, names=frozenset(all_stems(found)))
    if source:
        found = Labels(source, together.images)
        return replace(found, names=frozenset(stems_in(found)))
    if images and together.source != together.images:
        files = list_files(images, IMAGE_SUFFIXES)
        return replace(together, names=frozenset(together.path_of(file) for file in files))
    return None


def all_stems(labels: Labels) -> set[str]:
    """The images with and without labels, as ``stems_in``."""
    return stems_in(labels) | Images(labels, Report()).by_stem.keys()


def stems_in(labels: Labels) -> set[str]:
    """The images with an XML file as paths without suffix; the file's path if no image is there."""
    files = list_files(labels.source, ('.xml',))
    owned = images_of(files, labels, Images(labels, Report()))
    return {labels.path_of(owned[f]) if f in owned else stem_of(f, labels) for f in files}


def stem_of(path: Path, labels: Labels) -> str:
    """The path of an XML file in the folder of labels, without its suffix."""
    return path.relative_to(labels.source).as_posix()[: -len('.xml')]


def images_of(files: Sequence[Path], labels: Labels, images: Images) -> dict[Path, Path]:
    """The image of each XML file: of its path, else of its name, else of its ``filename``.

    No image is of two files. Where the images have the same folders as the labels, an image of the
    same name in another folder is another image.
    """
    stems = {path: stem_of(path, labels) for path in files}
    found: dict[Path, Path] = {}
    for path, stem in stems.items():
        if file := images.by_stem.get(stem) or images.by_path.get(stem):  # a.xml, a.jpg.xml
            found[path] = file
    taken = set(found.values())
    folders = {os.path.dirname(stem) for stem in images.by_stem}  # with '' for the folder itself
    for find in (same_name, named_image):
        for path in files:
            if path in found or (file := find(path, images)) is None or file in taken:
                continue
            if file.stem != path.stem or os.path.dirname(stems[path]) not in folders:
                found[path] = file
                taken.add(file)
    return found


def same_name(path: Path, images: Images) -> Path | None:
    """The only image of the name of an XML file."""
    same = images.by_name.get(path.stem, ())
    return same[0] if len(same) == 1 else None


def named_image(path: Path, images: Images) -> Path | None:
    """The image whose ``folder`` and ``filename`` an annotation has."""
    root = read_xml(path)
    name = (root.findtext('filename') or '').strip()
    return images.find(f'{(root.findtext("folder") or "").strip()}/{name}') if name else None
