"""The user's data as a config names it: files, folders and classes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..datasets.classes import CLASSES_FILE, Colour, distinct_colour, read_classes
from ..datasets.images.band_files import ARRAY, is_first
from ..datasets.labels.canonical import CanonicalSplit, as_canonical, check_left_out
from ..datasets.labels.coco import COCO, find_coco
from ..datasets.labels.files import IMAGE_SUFFIXES, list_files
from ..datasets.labels.folders import find_labels
from ..datasets.labels.foreign import form_by_name
from ..datasets.labels.inventory import inventory_of
from ..datasets.labels.objects import LabelFolder
from ..datasets.labels.splits import WORDS
from .settings import Own, OwnObjects

CONVERTED = Path('work_dirs', 'own_data')  # of the canonical COCO files
UNLISTED = ('voc', 'labelme', 'dota')  # formats without a list of classes: classes.txt is it


@dataclass(frozen=True)
class OwnData:
    """A data set as a config takes it.

    Attributes:
        files: by 'train' and 'val', the settings of a data set that name its files and folders.
        classes, palette: names, and their colours; none for depth.
        images: number of the training images.
        text: what was found, for the recipe; '' where the data are not there.
    """

    files: Mapping[str, dict[str, Any]]
    classes: Sequence[str]
    palette: Sequence[Colour]
    images: int
    text: str

    def apply(self, cfg: dict) -> None:
        """Set files and classes of the data sets of a config, in place."""
        palette = dict(palette=self.palette) if self.palette else {}
        for name in ('train', 'val', 'test'):
            files = self.files['train' if name == 'train' else 'val']
            metainfo = dict(classes=tuple(self.classes), **palette)
            cfg[f'{name}_dataloader']['dataset'].update(metainfo=metainfo, **files)
        cfg['own_files'] = dict(self.files)
        if self.text:
            cfg['own_data'] = self.text


def check_root(own: Own) -> None:
    """Raise ValueError unless the folder of the data set is there."""
    if own.root.is_file():
        form = form_by_name(own.root) or 'a file: give its folder'
        raise ValueError(f'own.data_root={own.data_root!r} is {form}')
    if not own.root.is_dir():
        raise ValueError(
            f'own.data_root={own.data_root!r}: no such folder (seen from {os.getcwd()})'
        )


def find_objects(own: OwnObjects, *, oriented: bool = False, outlines: bool = False) -> OwnData:
    """The objects of a data set with labels of any format, as canonical COCO files.

    Where the folder is not there, but ``own.classes`` says the classes, one training image is
    assumed, so that a recipe can be read without its data.

    Args:
        oriented, outlines: see ``as_canonical``.

    Raises:
        ValueError: labels that are not there or cannot be used.
    """
    if own.classes and not own.root.exists():
        absent = {split: files_of(own, f'annotations/{split}.json', split) for split in WORDS}
        return OwnData(absent, own.classes, colours_of(own.classes), 1, '')
    check_root(own)
    file = own.root / CLASSES_FILE
    listed, colours = read_classes(file) if file.is_file() else (None, [])
    folder = label_folder(own)
    if not folder.classes and folder.format.name in UNLISTED:
        folder = replace(folder, classes=listed)
    if own.separate_files:
        folder = of_first_channel(folder, own.channel_names)
    splits, text = as_canonical(
        folder, CONVERTED, own.classes, oriented=oriented, outlines=outlines
    )
    train = splits['train']
    if listed and not own.classes:
        check_listed(file, listed, train.classes)
    check_splits(own, splits, text)
    files = {split: files_of(own, part.ann_file, part.images) for split, part in splits.items()}
    palette = colours_of(train.classes, dict(zip(listed or (), colours, strict=True)))
    images = train.num_images if own.negatives else train.num_with_objects
    return OwnData(files, train.classes, palette, images, text)


def check_listed(file: Path, listed: Sequence[str], labelled: Sequence[str]) -> None:
    """Raise ValueError unless classes.txt has the classes of the labels; it chooses none."""
    parts = (('lacks', labelled, listed), ('has also', listed, labelled))
    said = [
        f'{verb} {", ".join(names[:8])}{" ..." if len(names) > 8 else ""}'
        for verb, these, others in parts
        if (names := [name for name in these if name not in others])
    ]
    if said:
        raise ValueError(
            f'{file} differs from the classes of the labels, it {" and ".join(said)}: choose '
            'classes by own.classes=[...], or mend or remove the file'
        )


def files_of(own: Own, ann_file: object, images: object) -> dict[str, Any]:
    """Files and folders of a split as mmdet's data sets take them."""
    root, prefix = f'{own.root}{os.sep}', dict(img=f'{images}/')
    return dict(data_root=root, ann_file=str(ann_file), data_prefix=prefix)


def label_folder(own: OwnObjects) -> LabelFolder:
    """The labels of a data set: the COCO files that settings name, else what is recognised.

    Raises:
        ValueError: there are none.
    """
    if not (own.train or own.val):
        return find_labels(own.root, own.format)
    if own.format not in (None, COCO.name):
        raise ValueError(f'own.format={own.format}: own.train and own.val name COCO files')
    train, val = (str(file) if file else None for file in (own.train, own.val))
    folder = find_coco(inventory_of(own.root), train, val)
    assert folder is not None  # or it says why
    return folder


def of_first_channel(folder: LabelFolder, names: Sequence[str]) -> LabelFolder:
    """The labels of the images that are files of the first of several channels."""
    splits = {}
    for split, labels in folder.splits.items():
        files = list_files(labels.images, (*IMAGE_SUFFIXES, ARRAY))
        stems = labels.names or map(labels.path_of, files)
        first = frozenset(stem for stem in stems if is_first(labels.images / stem, names))
        splits[split] = replace(labels, names=first)
    return replace(folder, splits=splits)


def check_splits(own: OwnObjects, splits: Mapping[str, CanonicalSplit], text: str) -> None:
    """Raise ValueError for a split of which much is left out, or nothing is left to evaluate."""
    check_left_out(dict(splits), text, own.partial)
    for split, part in splits.items():
        if part.num_objects <= part.num_ignored:
            raise ValueError(
                f'{own.root}: no {WORDS[split]} image has an object of '
                f'{", ".join(part.classes)}: {"; ".join(text.splitlines())}'
            )


def colours_of(classes: Sequence[str], given: Mapping[str, Colour] | None = None) -> list[Colour]:
    """The colour of each class: a given one, or one unlike its neighbours' colours."""
    colours = given or {}
    return [colours.get(name, distinct_colour(index)) for index, name in enumerate(classes)]
