"""The annotation formats, and the data set in a folder."""

import os
from contextlib import suppress
from dataclasses import replace

from ...utils.configs import DOCS
from ...utils.validation import check_choice
from .coco import COCO, find_coco
from .createml import CREATEML
from .cvat import CVAT
from .dota import DOTA
from .foreign import foreign_form
from .geojson import GEOJSON
from .inventory import Inventory
from .labelme import LABELME
from .maps import MASKS
from .objects import Format, LabelFolder
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

    The format, and COCO files below the folder, are recognised unless they are given.
    """
    root = inventory.root
    if format is not None:
        check_choice('own.format', format, tuple(FORMATS))
    if train or val:
        if format not in (None, COCO.name):
            raise ValueError(
                f'own.format={format}: own.train and own.val name COCO files'
            )
        if (named := find_coco(inventory, train, val)) is not None:
            return named
    forms = [form for form in READERS if format in (None, form.name)]
    forms = [form for form in forms if may_have(inventory, form)] or forms
    found, problems = list[LabelFolder](), list[str]()
    for form in forms:
        try:
            if (folder := form.find(inventory)) is not None:
                found.append(folder)
        except ValueError as problem:
            problems.append(str(problem))
    if len(found) > 1:
        names = ' and '.join(folder.format.title for folder in found)
        choices = ' or '.join(f'own.format={folder.format.name}' for folder in found)
        raise ValueError(f'{root} has labels of {names}: choose one by {choices}')
    if found:
        notes = [
            f'labels of another format are not read: {problem}' for problem in problems
        ]
        return replace(found[0], notes=(*found[0].notes, *notes))
    known = foreign_form(inventory)
    if known and not any(known.partition(': ')[0] in problem for problem in problems):
        raise ValueError(f'{known}. {PAGE}')  # else a problem says the reason better
    if problems:
        raise ValueError('; '.join(problems))
    masks = None
    with suppress(ValueError):
        masks = find_pairs(inventory, MASKS)
    hint = ' (images with masks are for own/semantic.py)' if masks else ''
    titles = ', '.join(form.title for form in forms)
    below = sorted(
        {path.parent.relative_to(root).as_posix() for path in inventory.below(root)}
    )
    places = ', '.join(
        'the folder itself' if name == '.' else name for name in below[:PLACES]
    )
    raise ValueError(
        f'{root}: no labels as {titles}{hint}; it has {inventory.suffixes_in(root)} in '
        f'{places or "no folder"}{" ..." if len(below) > PLACES else ""}. {PAGE}'
    )


def may_have(inventory: Inventory, form: Format) -> bool:
    """Return whether a folder has files with the suffixes of a format, in folders as it needs."""
    if inventory.by_suffix.keys().isdisjoint(form.suffixes):
        return False
    if form.kind is None or not form.kind.is_apart:
        return True
    words = map(form.kind.word, map(os.path.basename, inventory.folders))
    return any(word and word[1] for word in words)
