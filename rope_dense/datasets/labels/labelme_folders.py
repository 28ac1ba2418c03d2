"""Folders of LabelMe's JSON files, and the image of each."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from .files import Images, list_files, read_json, read_text, subfolders
from .label_files import labelled_stems, stems_of, with_unlabelled
from .objects import Labels, Report
from .splits import SPLITS, by_folder, by_hash, check_unlabelled, unnamed

LABEL_FOLDERS = ('annotations', 'annotation', 'labels', 'label', 'json', 'jsons', 'ann', 'labelme')
IMAGE_FOLDERS = ('images', 'image', 'imgs', 'img', 'jpegimages')
LOOKED_AT = 20  # files that decide whether a folder has LabelMe's


def splits_in(root: Path) -> tuple[dict[str, Labels], str] | None:
    """Both splits of a data set, and what says which image is in which; None for no data set."""
    together = labels_in(root)
    if together is None:
        return None
    if not any(labels_of_split(root, together, name) for name in SPLITS['val']):
        check_unlabelled([root, together.images], together.source)
    labelled = stems_in(together)
    found = by_folder(lambda name: labels_of_split(root, together, name))
    splits, described = found or by_hash(together, labelled)
    return with_unlabelled(splits, labelled), described


def labels_in(home: Path) -> Labels | None:
    """The folders of JSON files and of images in a folder, or the folder itself for both."""
    folders = subfolders(home)
    images = next((folders[name] for name in IMAGE_FOLDERS if name in folders), None)
    for name in LABEL_FOLDERS:
        if name in folders and has_labelme(folders[name]):
            return Labels(folders[name], images or home)
    if images and has_labelme(images):
        return Labels(images, images)
    for folder in unnamed(folders, {*LABEL_FOLDERS, *IMAGE_FOLDERS}):
        if images and has_labelme(folder):
            return Labels(folder, images)
    return Labels(home, home) if has_labelme(home) else None


def labels_of_split(root: Path, together: Labels, name: str) -> Labels | None:
    """The labels in the folder of a split, or in folders of the split for labels and images."""
    if (folder := subfolders(root).get(name)) and (found := labels_in(folder)):
        return replace(found, names=frozenset(stems_in(found)))
    if together.source == root:
        return None
    source = subfolders(together.source).get(name)
    images = subfolders(together.images).get(name)
    if source and has_labelme(source):
        found = Labels(source, images or together.images)
        return replace(found, names=frozenset(stems_in(found)))
    if images:
        stems = {stem for stem in stems_in(together) if stem.split('/')[0].lower() == name}
        return replace(together, names=frozenset(stems)) if stems else None
    return None


def has_labelme(folder: Path) -> bool:
    """Return whether one of the first JSON files of a folder is LabelMe's."""
    return any(is_labelme(path) for path in list_files(folder, ('.json',))[:LOOKED_AT])


def is_labelme(path: Path) -> bool:
    """Return whether a JSON file is LabelMe's, or would be if it were not broken.

    COCO's files, which are large, are not parsed.
    """
    try:
        text = read_text(path)
        content = json.loads(text) if '"shapes"' in text else None
    except json.JSONDecodeError:
        return True
    except ValueError:  # of another encoding
        return b'"shapes"' in path.read_bytes()
    return isinstance(content, dict) and 'shapes' in content


def stems_in(labels: Labels) -> set[str]:
    """The labelled images as paths without suffix; the path of a JSON file without an image."""
    files = stems_of(list_files(labels.source, ('.json',)), labels.source)
    return labelled_stems(files, Images(labels, Report()), named_image)


def named_image(path: Path, stem: str, images: Images) -> Path | None:
    """The image that ``imagePath`` names."""
    try:
        content = read_json(path)
    except ValueError:  # the reader says it
        return None
    name = content.get('imagePath') if isinstance(content, dict) else None
    return images.find(name) if isinstance(name, str) else None
