"""The user's data as a config names it: files, folders and classes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..datasets.classes import CLASSES_FILE, Colour, distinct_colour, read_classes
from ..datasets.images.pictures import check_picture
from ..datasets.labels.canonical import CanonicalSplit, as_canonical, check_left_out
from ..datasets.labels.folders import find_labels
from ..datasets.labels.foreign import form_by_name
from ..datasets.labels.inventory import Inventory, inventory_of
from ..datasets.labels.maps import MapFiles, MapFolder, PairsOf, as_pairs, find_maps
from ..datasets.labels.objects import LabelFolder
from ..datasets.labels.pairs import Kind
from ..datasets.labels.splits import WORDS
from .channel_data import survey_channels
from .settings import Own, OwnObjects
from .value_range import survey_pictures

CONVERTED = Path('work_dirs', 'own_data')  # of the canonical files
# Formats without a list of classes: classes.txt is it.
UNLISTED = ('voc', 'labelme', 'dota', 'createml', 'geojson')


@dataclass(frozen=True)
class OwnData:
    """A data set as a config takes it.

    Attributes:
        files: by 'train' and 'val', the settings of a data set that name its files and folders.
        classes, palette: names, and their colours; none for depth.
        images: number of the training images.
        text: what was found, for the recipe; '' where the data are not there.
        survey: of the images, see ``survey_images``; None where the data are not there.
        state: a digest of the content of the labels; '' where the data are not there.
        most_objects: the largest number of objects in an image; 0 if it is not known.
    """

    files: Mapping[str, dict[str, Any]]
    classes: Sequence[str]
    palette: Sequence[Colour]
    images: int
    text: str
    survey: dict[str, Any] | None = None
    state: str = ''
    most_objects: int = 0

    def apply(self, cfg: dict) -> None:
        """Set files and classes of the data sets of a config, in place."""
        palette = dict(palette=self.palette) if self.palette else {}
        for name in ('train', 'val', 'test'):
            files = self.files['train' if name == 'train' else 'val']
            metainfo = dict(classes=tuple(self.classes), **palette)
            cfg[f'{name}_dataloader']['dataset'].update(metainfo=metainfo, **files)
        cfg['own_files'], cfg['own_state'] = dict(self.files), self.state
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


def own_inventory(own: Own) -> Inventory:
    """The files in the folder of the data set."""
    return inventory_of(own.root, own.separate_names, arrays=own.channels is not None)


def survey_images(
    own: Own, inventory: Inventory, images: Mapping[str, Sequence[Path]]
) -> dict[str, Any]:
    """What is kept of the images of each split, for the pipelines.

    Raises:
        ValueError: an image is no picture, or not of ``own.channels``.
    """
    if own.channels is not None:
        return survey_channels(own, images['train'], images['val'])
    survey = survey_pictures({x: inventory.header(x) for x in images['train']}, own.max_value)
    for path in images['val']:
        check_picture(path, inventory.header(path))
    return survey


def settings_of_images(own: Own) -> object:
    """The settings that ``survey_images`` depends on."""
    return own.channels, own.separate_files, own.mean, own.std, own.show, own.max_value


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

    def find(inventory: Inventory) -> LabelFolder:
        named = [None if name is None else str(name) for name in (own.train, own.val)]
        folder = find_labels(inventory, own.format, *named)
        if not folder.classes and folder.format.name in UNLISTED:
            folder = replace(folder, classes=listed)
        return folder

    inventory = own_inventory(own)
    found = as_canonical(
        inventory,
        find,
        CONVERTED,
        own.classes,
        oriented=oriented,
        outlines=outlines,
        survey=partial(survey_images, own, inventory),
        settings=(own.format, own.train, own.val, settings_of_images(own)),
    )
    train = found.splits['train']
    if listed and not own.classes:
        check_listed(file, listed, train.classes)
    check_splits(own, found.splits, found.text)
    return OwnData(
        files={s: files_of(own, part.ann_file, part.images) for s, part in found.splits.items()},
        classes=train.classes,
        palette=colours_of(train.classes, dict(zip(listed or (), colours, strict=True))),
        images=train.num_images if own.negatives else train.num_with_objects,
        text=found.text,
        survey=found.survey,
        state=found.state,
        most_objects=max(part.most_objects for part in found.splits.values()),
    )


def find_own_maps(own: Own, kind: Kind) -> MapFolder:
    """The images of a data set with their masks or depth maps."""
    return find_maps(own_inventory(own), kind, dict(train=own.train, val=own.val))


def own_maps(
    own: Own, kind: Kind, survey: Callable[[PairsOf], list[dict]], settings: object
) -> MapFiles:
    """The images of a data set with their masks or depth maps, as lists; see ``as_pairs``.

    Args:
        survey: what is kept of the maps.
        settings: which ``survey`` depends on.

    Returns:
        Its survey has 'maps' and 'images'.
    """
    inventory = own_inventory(own)
    words = (*kind.image_words, *map(re.escape, own.separate_names))
    kind = replace(kind, image_words=words)

    def survey_all(pairs: PairsOf) -> dict[str, Any]:
        images = {split: [image for image, _ in some] for split, some in pairs.items()}
        return dict(images=survey_images(own, inventory, images), maps=survey(pairs))

    given = dict(train=own.train, val=own.val)
    about = settings, settings_of_images(own)
    return as_pairs(inventory, kind, CONVERTED, given, survey_all, about)


def maps_as_data(
    own: Own,
    found: MapFiles,
    prefix: str,
    lines: Sequence[str],
    classes: Sequence[str] = (),
    palette: Sequence[Colour] = (),
    **settings: Any,
) -> OwnData:
    """Images with masks or depth maps as a config takes them.

    Args:
        prefix: name of the folder of the maps in ``data_prefix``.
        lines: of the report, about the maps.
        **settings: of the data sets.
    """
    folders = dict(data_root=str(own.root), data_prefix={'img_path': '', prefix: ''})
    files = {s: dict(**folders, ann_file=file, **settings) for s, file in found.ann_file.items()}
    text = '\n'.join([found.text, *lines])
    images = found.survey['images']
    return OwnData(files, classes, palette, found.images['train'], text, images, found.state)


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
