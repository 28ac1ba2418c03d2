"""The annotation formats, and the data set in a folder."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from ...utils.configs import DOCS
from ...utils.validation import check_choice
from .coco_folders import COCO, find_coco
from .createml import CREATEML
from .cvat import CVAT
from .dota import DOTA
from .foreign import foreign_form
from .geojson import GEOJSON
from .inventory import Inventory
from .joined import FOLDERS, find_in_folders
from .label_folder import Format, LabelFolder
from .labelme import LABELME
from .maps import MASKS
from .pairs import find_pairs
from .voc import VOC
from .yolo_folders import YOLO

READERS = (COCO, YOLO, VOC, CVAT, DOTA, LABELME, CREATEML, GEOJSON)
FORMATS: dict[str, Format] = {form.name: form for form in READERS}
PAGE = f'{DOCS}/own_data.md has the folders of each format'
PLACES = 8  # folders of unknown labels that are named


def find_labels(
    inventory: Inventory,
    format: str | None = None,
    train: str | None = None,
    val: str | None = None,
) -> LabelFolder:
    """The data set in a folder; ValueError for labels of no format, of several, or of no use.

    The format, and COCO files below the folder, are recognised unless they are given; with
    ``FOLDERS`` each folder in the folder is a data set.
    """
    root = inventory.root
    if format is not None:
        check_choice('own.format', format, (*FORMATS, FOLDERS))
    if train or val:
        if format not in (None, COCO.name):
            raise ValueError(
                f'own.format={format}: own.train and own.val name COCO files'
            )
        named = find_coco(inventory, train, val)
        if named is not None:
            return named
    if format == FOLDERS:
        return find_in_folders(inventory, find_labels)
    asked = [*READERS] if format is None else [FORMATS[format]]
    forms = [form for form in asked if may_have(inventory, form)] or asked
    found = []
    problems = []
    for form in forms:
        try:
            folder = form.find(inventory)
        except ValueError as problem:
            problems.append(str(problem))
            continue
        if folder is not None:
            found.append(folder)
    if len(found) > 1:
        names = ' and '.join(folder.format.title for folder in found)
        choices = ' or '.join(f'own.format={folder.format.name}' for folder in found)
        raise ValueError(
            f'{root} has labels of {names}: choose one by {choices}; own.format={FOLDERS} reads '
            'each folder in it as a data set of its own'
        )
    if not found:
        raise unknown_labels_error(inventory, forms, problems)
    notes = [*found[0].notes]
    for text in problems:
        notes.append(f'labels of another format are not read: {text}')
    return replace(found[0], notes=tuple(notes))


def unknown_labels_error(
    inventory: Inventory, forms: Sequence[Format], problems: Sequence[str]
) -> ValueError:
    """The error of a folder that has labels of no format, or only some that have problems."""
    root = inventory.root
    known = foreign_form(inventory)
    text = '; '.join(problems)
    if known and known.partition(': ')[0] not in text:
        return ValueError(f'{known}. {PAGE}')  # else a problem says the reason better
    if text:
        return ValueError(text)
    hint = ''
    with suppress(ValueError):
        if find_pairs(inventory, MASKS):
            hint = ' (images with masks are for own/semantic.py)'
    titles = ', '.join(form.title for form in forms)
    folders = set()
    for path in inventory.below(root):
        folders.add(path.parent.relative_to(root).as_posix())
    names = sorted(folders)[:PLACES]
    if '.' in names:
        names[names.index('.')] = 'the folder itself'
    places = ', '.join(names) or 'no folder'
    more = ' ...' if len(folders) > PLACES else ''
    return ValueError(
        f'{root}: no labels as {titles}{hint}; it has {inventory.suffixes_in(root)} in '
        f'{places}{more}. {PAGE}'
    )


def may_have(inventory: Inventory, form: Format) -> bool:
    """Return whether a folder has files with the suffixes of a format, in folders as it needs."""
    if inventory.by_suffix.keys().isdisjoint(form.suffixes):
        return False
    if form.kind is None or not form.kind.is_apart:
        return True
    for folder in inventory.folders:
        word = form.kind.word(os.path.basename(folder))
        if word and word.of_labels:
            return True
    return False
