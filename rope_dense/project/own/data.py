"""The user's data as a config names it: files, folders and classes."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...data.classes import CLASSES_FILE, Colour, distinct_colour, read_classes
from ...data.labels.annotations import Rules
from ...data.labels.canonical import check_left_out, write_canonical
from ...data.labels.evaluated import evaluated
from ...data.labels.folders import find_labels
from ...data.labels.foreign import form_by_name
from ...data.labels.inventory import Inventory
from ...data.labels.label_folder import LabelFolder
from ...data.labels.maps import PairsOf, write_pair_lists
from ...data.labels.places import FileKind
from ...data.labels.splits import WORDS, split_word
from ...data.labels.unlabelled import write_picture_list
from ...utils.config_parts import LOADERS
from ...utils.disk import read_json_or_empty
from ...utils.validation import did_you_mean
from .images import Survey, settings_of_images, survey_images
from .settings import Own, OwnAdapt, OwnMaps, OwnObjects, other_names

Part = dict[str, Any]  # settings of a part of a config
TOO_SMALL, MANY = 8, 0.1  # pixels of a side; share of the training objects
CONVERTED = Path('work_dirs', 'own_data')  # of the canonical files


@dataclass(frozen=True)
class OwnData:
    """A data set as a config takes it; text, survey and state are empty where it is not there."""

    # By 'train' and 'val': its files, as settings of data sets; of an evaluation the same.
    files: Mapping[str, Part]
    classes: Sequence[str]  # none for depth, as ``palette``
    palette: Sequence[Colour]
    images: int  # number of the training images
    text: str  # for the recipe
    survey: Survey | None = None  # see ``survey_images``
    state: str = ''  # a digest of the content of the labels
    # The largest number of objects in an image; 0 if it is not known.
    most_objects: int = 0
    is_partial: bool = False  # not all images are labelled for all classes
    renamed: Sequence[str] = ()  # names of ``same_as`` that the labels have

    def apply(self, cfg: dict) -> None:
        """Set files and classes of the data sets of a config, in place."""
        for name in LOADERS:
            files = self.files['train' if name == LOADERS[0] else 'val']
            metainfo: Part = dict(classes=tuple(self.classes))
            if self.palette:
                metainfo['palette'] = self.palette
            cfg[name]['dataset'].update(metainfo=metainfo, **files)
        cfg['own_files'] = dict(self.files)
        cfg['own_state'] = self.state
        if self.text:
            cfg['own_data'] = self.text
        if self.renamed:
            cfg['own_renamed'] = [*self.renamed]


def check_root(own: Own) -> None:
    """Raise ValueError unless the folder of the data set is there."""
    near = did_you_mean(own.data_root, map(str, own.root.parent.glob('*/')))
    fault = f': no such folder (seen from {os.getcwd()}){near}'
    if own.root.is_file():
        fault = f' is {form_by_name(own.root) or "a file: give its folder"}'
    if not own.root.is_dir():
        raise ValueError(f'own.data_root={own.data_root!r}{fault}')


def own_inventory(own: Own, asked: str = '') -> Inventory:
    """The files in the folder of the data set; `asked`: see ``Inventory``."""
    separate = own.channel_names if own.separate_files else ()
    arrays = own.channels is not None
    return Inventory(own.root, separate, arrays=arrays, asked=asked)


def find_objects(
    own: OwnObjects,
    inventory: Inventory,
    *,
    oriented: bool = False,
    outlines: bool = False,
) -> OwnData:
    """The objects of a data set with labels of any format, as canonical COCO files.

    Where the folder is not there, but ``own.classes`` says the classes, one training image is
    assumed, so that a recipe can be read without its data. ``oriented``, ``outlines``: see
    ``Rules``. ValueError for labels that are not there or cannot be used.
    """
    files = {}
    if own.classes and not own.root.exists():
        for split in WORDS:
            files[split] = files_of(own, f'annotations/{split}.json', split)
        return OwnData(files, own.classes, colours_of(own.classes, {}), 1, '')
    check_root(own)
    file = own.root / CLASSES_FILE
    listed, colours = read_classes(file) if file.is_file() else (None, [])
    same_as = other_names(own.same_as)

    def find_all(inventory: Inventory) -> LabelFolder:
        named = [None if name is None else str(name) for name in (own.train, own.val)]
        folder = find_labels(inventory, own.format, *named)
        if not folder.classes and not folder.format.lists_classes:
            folder = replace(folder, classes=listed)
        return folder

    found = write_canonical(
        inventory,
        partial(evaluated, find=find_all),
        CONVERTED,
        own.classes,
        Rules(oriented, outlines, own.labelled_parts, same_as),
        survey=partial(survey_images, own, inventory.header),
        settings=(
            *(own.format, own.train, own.val, inventory.asked),
            settings_of_images(own),
        ),
    )
    train = next(iter(found.splits.values()))
    text = found.text
    if listed and not own.classes:
        names = [same_as.get(name, name) for name in listed]
        check_classes_file(file, names, train.classes)
    check_left_out(found.splits, text, own.partial)
    small = np.mean(np.array(train.sides) * own.size < TOO_SMALL)
    if own.tile is None and small >= MANY:
        text += (
            f'\n{small:.0%} of the {split_word("train", inventory)} objects are smaller than '
            f'{TOO_SMALL} pixels at '
            f'own.size={own.size}: a larger own.size, or tiles of the images (own.tile), show them'
        )
    for split, part in found.splits.items():
        if part.num_objects <= part.num_ignored:
            raise ValueError(
                f'{own.root}: no {split_word(split, inventory)} image has an object of '
                f'{", ".join(part.classes)}: {"; ".join(found.text.splitlines())}'
            )
        files[split] = files_of(own, str(part.ann_file), part.images)
    return OwnData(
        files=dict.fromkeys(WORDS, files['val']) | files,
        classes=train.classes,
        palette=colours_of(
            train.classes, dict(zip(listed or (), colours, strict=True))
        ),
        images=train.num_images if own.negatives else train.num_with_objects,
        text=text,
        survey=found.survey,
        state=found.state,
        most_objects=max(part.most_objects for part in found.splits.values()),
        is_partial=any(part.num_partial for part in found.splits.values()),
        renamed=found.renamed,
    )


def files_of(own: OwnObjects, ann_file: str, images: str | Path) -> Part:
    """The files of a split of objects, as settings of a data set."""
    prefix = dict(img=f'{images}/')
    return dict(data_root=f'{own.root}{os.sep}', ann_file=ann_file, data_prefix=prefix)


def files_in(files: Part) -> list[Path]:
    """The images of a split by its files; none where its list is gone."""
    listed = read_json_or_empty(Path(files.get('ann_file') or ''))
    root = Path(files['data_root'])
    if 'images' in listed:
        folder = root / files['data_prefix']['img']
        return [folder / entry['file_name'] for entry in listed['images']]
    return [root / image for image, _ in listed.get('pairs', ())]


def find_own_maps(
    own: OwnMaps,
    inventory: Inventory,
    kind: FileKind,
    survey: Callable[[list[tuple[Path, Path]], str], dict],
    lines: Callable[[dict], Sequence[str]],
    settings: object,
    prefix: str,
    **dataset: Any,
) -> OwnData:
    """The images of a data set with their masks or depth maps, as lists; without classes.

    Args:
        survey, lines: result of a split's (image, map) pairs, as JSON; lines of the report on it.
        settings: which ``survey`` depends on.
        prefix, dataset: name of the folder of maps in ``data_prefix``; settings of the data sets.
    """
    if own.separate_files:
        words = (*kind.image_words, *map(re.escape, own.channel_names))
        kind = replace(kind, image_words=words)

    def survey_all(pairs: PairsOf) -> Part:
        images = {}
        maps = []
        for split, some in pairs.items():
            images[split] = [image for image, _ in some]
            maps.append(survey(some, split))
        return dict(images=survey_images(own, inventory.header, images), maps=maps)

    given = dict(train=own.train, val=own.val)
    about = settings, settings_of_images(own), inventory.asked
    found = write_pair_lists(inventory, kind, CONVERTED, given, survey_all, about)
    said = [found.text]
    files = {}
    for split, file in found.ann_file.items():
        files[split] = dict(
            data_root=str(own.root),
            data_prefix={'img_path': '', prefix: ''},
            ann_file=file,
            **dataset,
        )
    for maps in found.survey['maps']:
        said += lines(maps)
    files = dict.fromkeys(WORDS, files['val']) | files
    number = next(iter(found.images.values()))
    survey_of = found.survey['images']
    return OwnData(files, (), (), number, '\n'.join(said), survey_of, found.state)


def find_pictures(own: OwnAdapt, inventory: Inventory) -> OwnData:
    """The pictures of a folder, and frames of its videos; ValueError if there are none."""
    check_root(own)
    survey = partial(survey_images, own, inventory.header)
    folder = None if own.train is None else str(own.train)
    found = write_picture_list(
        inventory, CONVERTED, folder, survey, settings_of_images(own)
    )
    files = {}
    for split, file in found.ann_file.items():
        files[split] = dict(data_root=str(own.root), ann_file=file)
    number = found.images['train']
    classes = (f'{number} pictures',)  # of which a resumed run must have as many
    return OwnData(files, classes, (), number, found.text, found.survey, found.state)


def check_classes_file(
    file: Path, listed: Sequence[str], labelled: Sequence[str]
) -> None:
    """Raise ValueError unless classes.txt has the classes of the labels; it chooses none."""
    said = []
    for verb, those, others in (
        ('lacks', labelled, listed),
        ('has also', listed, labelled),
    ):
        names = [name for name in those if name not in others]
        if names:
            more = ' ...' if len(names) > 8 else ''
            said.append(f'{verb} {", ".join(names[:8])}{more}')
    if said:
        raise ValueError(
            f'{file} differs from the classes of the labels, it {" and ".join(said)}: choose '
            'classes by own.classes=[...], or mend or remove the file'
        )


def colours_of(classes: Sequence[str], given: Mapping[str, Colour]) -> list[Colour]:
    """The colour of each class: a given one, or one unlike its neighbours' colours."""
    names = enumerate(classes)
    return [given.get(name, distinct_colour(index)) for index, name in names]
