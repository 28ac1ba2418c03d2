"""The label file of each image of a YOLO data set.

It is where ultralytics looks for it: in `labels/train` for `images/train`, else beside the image.
darknet's `JPEGImages` counts as `images`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from .files import IMAGE_SUFFIXES, Images, folded, list_files, parts_of, read_text, without_suffix
from .objects import Labels, Report
from .splits import Splits, by_hash

LABELS = {'images': 'labels', 'Images': 'Labels', 'IMAGES': 'LABELS', 'JPEGImages': 'labels'}
LISTS = re.compile(r'notes|readme.*|(autosplit_)?(train|val|valid|test|trainval)', re.I)  # NAME.txt
NO_LABELS = re.compile(r'(^|/)((labeltxt[^/]*|annfiles|imagesets)/|(classes|labels)\.txt$)', re.I)
LISTS_OF_NAMES = ('classes.txt', 'labels.txt')
ELSEWHERE = 'label file in another folder than its image (taken by its name)'
ALIKE = 'label file whose name has another case or Unicode form than its image (taken)'


def labels_of(places: Sequence[Path], root: Path, options: Mapping[str, Any]) -> Labels | None:
    """The labels of a split whose images are in folders and in lists; None if no file has labels.

    Raises:
        ValueError: a list names no image, or the images have no folder in common.
    """
    folders = [str(place) for place in places if place.is_dir()]
    listed = [image for place in places if place.is_file() for image in images_in(place, root)]
    homes = list(dict.fromkeys([*folders, *map(os.path.dirname, listed)]))
    if not (pairs := [pair for home in homes for pair in label_folders(home)]):
        return None
    source = os.path.commonpath([labels for labels, _ in pairs])
    images = os.path.commonpath([*homes, *(images for _, images in pairs)])
    if [images] == folders and not listed and len(pairs) == 1:
        return Labels(Path(source), Path(images), None, options)
    check_common(images, homes, root)
    inside = [without_suffix(file) for folder in folders for file in images_below(folder)]
    names = frozenset(image[len(images) + 1 :] for image in [*inside, *listed])
    return Labels(Path(source), Path(images), names, options)


def images_below(folder: Path | str) -> list[Path]:
    """The images in a folder and below it."""
    return list_files(Path(folder), IMAGE_SUFFIXES)


def check_common(images: str, homes: Sequence[str], root: Path) -> None:
    """Refuse a common folder that is above the data set, or is a whole disk."""
    common = Path(images)
    if common == root or root in common.parents or images in homes:
        return
    if common in root.parents or len(common.parts) < 3:
        raise ValueError(
            f'{root}: the images of one split are in {", ".join(homes[:4])}: link these folders '
            'into the data set'
        )


def label_folders(images: str) -> list[tuple[str, str]]:
    """The folders of labels for a folder of images, each with the folder of images that is alike.

    `labels/train` for `images/train`, and the folder itself, if they have label files; else
    `labels`, if it has the files of all folders in `images`.
    """
    labels = label_folder(images)
    pairs = dict.fromkeys([(labels, images), (images, images)])
    if found := [pair for pair in pairs if has_labels(pair[0])]:
        return found
    while labels != images and os.path.basename(labels) not in LABELS.values():
        labels, images = os.path.dirname(labels), os.path.dirname(images)
        if any(x.parent == Path(labels) and not is_list(x) for x in label_files(labels)):
            return [(labels, images)]
    return []


@lru_cache(maxsize=256)
def label_folder(images: str) -> str:
    """The folder of labels for a folder of images: the last `images` of its path is `labels`."""
    parts = images.split('/')
    for place in reversed(range(len(parts))):
        if parts[place] in LABELS:
            return '/'.join([*parts[:place], LABELS[parts[place]], *parts[place + 1 :]])
    return images


def label_place(image: str) -> str:
    """The path of a label file for an image of this path, both without suffix."""
    folder, _, name = image.rpartition('/')
    return f'{label_folder(folder)}/{name}'


def has_labels(folder: str) -> bool:
    """Return whether a text file in a folder, or below, is no list and no description."""
    return not all(map(is_list, label_files(folder)))


def is_list(path: Path) -> bool:
    """Return whether a text file is a list or description, by its name."""
    return LISTS.fullmatch(path.stem) is not None


def label_files(folder: Path | str) -> list[Path]:
    """The text files in a folder that may have labels."""
    start = len(str(folder))
    files = list_files(Path(folder), ('.txt',))
    return [path for path in files if not NO_LABELS.search(str(path)[start:])]


def images_in(listing: Path, root: Path) -> list[str]:
    """The images that a list names, one path a line, as absolute paths without suffix.

    Paths are relative to the list or to the data set; leading folders, of another machine or of a
    project, may be missing here. An image that is not there is named as if it were in the data set.

    Raises:
        ValueError: none of the images is there.
    """
    home = root if root in listing.parents else listing.parent
    known = {without_suffix(file) for file in images_below(home)}
    lines = [line.strip() for line in read_text(listing).splitlines() if line.strip()]
    found = [listed_image(line, listing.parent, home, known) for line in lines]
    if known.isdisjoint(found) and not any(map(os.path.isfile, lines)):
        raise ValueError(
            f'{listing}: none of its {len(lines)} images{"".join(f", {x}," for x in lines[:1])} is '
            f'in {home}, which has {len(known)} images'
        )
    return found


def listed_image(line: str, folder: Path, home: Path, known: Collection[str]) -> str:
    """The image of a line as an absolute path without suffix."""
    name = without_suffix(line.replace('\\', '/'))
    exact = os.path.normpath(os.path.join(folder, name))
    if exact in known:
        return exact
    parts = parts_of(name)
    for base in dict.fromkeys([folder, home]):
        for start in range(len(parts)):
            if (place := '/'.join([str(base), *parts[start:]])) in known:
                return place
    return exact if os.path.isfile(line) else '/'.join([str(home), *parts])


def matched(
    labels: Labels, images: Images, report: Report
) -> tuple[dict[str, Path], dict[str, Path]]:
    """The label file of each image; and label files of no image, by the path that it would have.

    Paths of images are in their folder and without suffix.

    Raises:
        ValueError: a label file may be of several images.
    """
    texts = {os.path.splitext(path)[0]: path for path in label_files(labels.source)}
    home = '' if labels.source == Path() else f'{labels.source}/'
    found: dict[str, str] = {}
    for stem, file in images.by_stem.items():
        image = os.path.splitext(file)[0]
        mirrored = [] if labels.source == labels.images else [f'{home}{stem}']
        for place in (*mirrored, label_place(image), image):
            if place in texts:
                found[stem] = place
                break
    used = set(found.values())
    rest = {image_of(path, labels): path for place, path in texts.items() if place not in used}
    paths = {stem: texts[place] for stem, place in found.items()}
    for stem, path in elsewhere(rest, paths, images).items():
        place = image_of(path, labels)
        report.note(ALIKE if folded(place) == folded(stem) else ELSEWHERE, path.name)
        del rest[place]
        paths[stem] = path
    return paths, rest


def in_two(labels: Labels) -> Splits:
    """Both splits of labels by a hash, and that in words; see ``by_hash``."""
    if labels.names is not None:
        return by_hash(labels)
    images = Images(labels, Report())
    _, rest = matched(labels, images, Report())
    without = {stem for stem, path in rest.items() if not is_list(path)}
    return by_hash(labels, images.by_stem.keys() | without)


def image_of(path: Path, labels: Labels) -> str:
    """The path that the image of a label file would have in its folder, without suffix."""
    parts = list(path.relative_to(labels.source).parts)
    parts[-1] = os.path.splitext(parts[-1])[0]
    names = {folder: images for images, folder in reversed(LABELS.items())}
    for place in reversed(range(len(parts) - 1)):
        if parts[place] in names:
            parts[place] = names[parts[place]]
            break
    return '/'.join(parts)


def elsewhere(
    rest: Mapping[str, Path], paths: Mapping[str, Path], images: Images
) -> dict[str, Path]:
    """Label files by the only image of their name, if no image has one where it belongs.

    Or if their name is the image's with its suffix, 'a.jpg.txt', or in another case or
    Unicode form.
    """
    found: dict[str, Path] = {}
    for place, path in rest.items():
        name, alike = without_suffix(path.stem), images.alike(without_suffix(place))
        named = [images.labels.path_of(file) for file in images.by_name.get(name, ())]
        same = alike or named
        free = [other for other in same if other not in paths]
        if not free or (not alike and name == path.stem and paths):
            continue
        if len(same) > 1 or free[0] in found:
            files = [found[free[0]]] if free[0] in found else []
            raise ValueError(
                f'{" and ".join(map(str, [*files, path]))}: which images are labelled there, of '
                f'{", ".join(same)} in {images.labels.images}? Put the label files into folders '
                'like the folders of the images'
            )
        found[free[0]] = path
    return found
