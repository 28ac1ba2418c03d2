"""The tasks of own data: their settings, and their data as files say them, without PyTorch."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from ...data.classes import (
    CLASS_NUMBERS,
    Colour,
    classes_file,
    find_class_numbers,
    read_classes,
)
from ...data.depth_maps import depth_lines, survey_depths
from ...data.labels.files import check_parts, part_of
from ...data.labels.inventory import Inventory
from ...data.labels.maps import DEPTH, MASKS, find_maps
from ...data.labels.splits import WORDS
from ...data.mask_labels import label_map, mask_lines, survey_masks
from ...utils.validation import did_you_mean
from .data import (
    OwnData,
    check_root,
    colours_of,
    files_in,
    find_objects,
    find_own_maps,
    find_pictures,
    own_inventory,
)
from .settings import (
    Given,
    Own,
    OwnAdapt,
    OwnDepth,
    OwnObjects,
    OwnOriented,
    OwnRealtime,
    OwnSemantic,
    task_settings,
)


class OwnTask(NamedTuple):
    """A task, without its recipe."""

    settings: type[Own]
    # The data of settings, by the files in the folder of the data set.
    find: Callable[[Any, Inventory], OwnData]


class Found(NamedTuple):
    """What a training starts from: its task and settings, and what is in the folder of its data."""

    task: str
    own: Own
    data: OwnData


def read_settings(task: object, given: Given) -> Own:
    """The settings of a task from values by name; ValueError for a wrong task or setting."""
    if not isinstance(task, str) or task not in TASKS:
        near = did_you_mean(str(task), TASKS)
        raise ValueError(f'task must be one of {tuple(TASKS)}, got {task!r}{near}')
    return task_settings(TASKS[task].settings, given)


def find_data(task: str, own: Own) -> Found:
    """Look up the data of a task; ValueError if they are not there, or cannot be used."""
    return Found(task, own, TASKS[task].find(own, own_inventory(own)))


def stored_settings(cfg: Mapping[str, Any]) -> Own | None:
    """The settings in a complete config of own data, which has `own`; None of other configs."""
    given = dict(cfg.get('own') or {})
    if 'task' not in given:
        return None
    gpus = given.pop('gpus', None)  # perhaps not as many as are started now
    return replace(read_settings(given.pop('task'), given), gpus=gpus)


def find_depth(own: OwnDepth, inventory: Inventory) -> OwnData:
    """The images and depth maps of a data set; ValueError if they are not there."""
    check_root(own)
    return find_own_maps(
        own,
        inventory,
        DEPTH,
        lambda pairs, split: survey_depths(pairs, split, own.unit, own.max_depth),
        depth_lines,
        (own.unit, own.max_depth),
        'depth_map_path',
    )


def find_semantic(own: OwnSemantic, inventory: Inventory) -> OwnData:
    """The images and masks of a data set, and its classes.

    Where the folder is not there, but ``own.classes`` says the classes, one training image is
    assumed, so that a recipe can be read without its data. ValueError for folders, masks or names
    of classes that are not there, or cannot be used.
    """
    if not own.classes or own.root.exists():
        check_root(own)
    try:
        classes, palette, numbers = trained_classes(own)
    except ValueError:
        if own.root.is_dir():  # a wrong folder lacks classes.txt, too
            find_maps(inventory, MASKS, dict(train=own.train, val=own.val))
        raise
    if not own.root.is_dir():
        absent = dict(img_path='images', seg_map_path='masks')
        files = dict(
            data_root=str(own.root), data_prefix=absent, ann_file='', **numbers
        )
        return OwnData(dict.fromkeys(WORDS, files), classes, palette, 1, '')
    check_parts(own.labelled_parts, classes, inventory.root, inventory.files)
    labels = label_map(classes, numbers['values'], numbers['void'] or ())
    data = find_own_maps(
        own,
        inventory,
        MASKS,
        lambda pairs, split: survey_masks(pairs, split, labels, classes),
        lambda survey: mask_lines(survey, classes),
        (classes, numbers),
        'seg_map_path',
        **numbers,
    )
    text = data.text
    images = files_in(data.files['train'])
    parts = Counter(part_of(x, own.root, own.labelled_parts) for x in images)
    for part, names in own.labelled_parts.items():
        listed = ', '.join(names)
        text += f'\n{parts[part]} of {len(images)} images ({part}) label {listed} alone'
    return replace(data, classes=classes, palette=palette, text=text)


def trained_classes(
    own: OwnSemantic,
) -> tuple[tuple[str, ...], list[Colour], dict[str, Any]]:
    """Names and colours of the trained classes, and settings of their masks."""
    names, colours, values = read_named_classes(own)
    listed = ', '.join(names)
    if values is not None and len(values) != len(names):
        raise ValueError(
            f'own.values={[*values]}: give a number for each of the {len(names)} classes, {listed}'
        )
    numbers = range(len(names)) if values is None else values
    void = []
    trained = []
    palette = []
    kept = []
    for word in own.void:
        if isinstance(word, str) and word not in names:
            raise ValueError(f'own.void: {word!r} is no class; there are {listed}')
        void.append(numbers[names.index(word)] if isinstance(word, str) else word)
    for name, colour, number in zip(names, colours, numbers, strict=True):
        if number not in void:
            trained.append(name)
            palette.append(colour)
            kept.append(number)
    if not kept:
        raise ValueError(f'own.void={[*own.void]}: no class is left of {listed}')
    own_values = None if values is None else kept
    settings = dict[str, Any](void=void, values=own_values)
    if own.labelled_parts:
        settings['labelled'] = own.labelled_parts
    return tuple(trained), palette, settings


def read_named_classes(
    own: OwnSemantic,
) -> tuple[Sequence[str], Sequence[Colour], Sequence[int] | None]:
    """Names and colours of all classes, and their numbers in masks if not 0, 1, 2 ..."""
    file = classes_file(own.root)
    given = own.classes
    values = own.values
    found = None if file.is_file() else find_class_numbers(own.root)
    if file.is_file():
        names, colours = read_classes(file)
    elif found:  # Roboflow's
        file = own.root / CLASS_NUMBERS
        (names, numbers) = found
        colours = colours_of(names, {})
        values = numbers if values is None else values
    elif given:
        return given, colours_of(given, {}), values
    else:
        raise ValueError(
            f'{file}: no such file. Write the names of the classes to it, a line for each number '
            'of the masks from 0, or give own.classes'
        )
    if not given or [*given] == [*names]:
        return names, colours, values
    lines: Sequence[int] = range(len(given))
    if own.values is not None and {*own.values} == {*range(len(names))}:
        lines = own.values
    # ``own.values`` of another length are refused later.
    moved = False
    for name, line in zip(given, lines, strict=False):
        moved |= name in names and names.index(name) != line
    has_lines = own.values is None or file.name != CLASS_NUMBERS
    if has_lines and (moved or {*given} < {*names}):
        raise ValueError(
            f'own.classes={[*given]}, and {file.name} of {own.root} has {", ".join(names)}: '
            'names are in the order of the numbers in the masks, so leave own.classes out or mend '
            'the file; own.void leaves classes out'
        )
    return given, colours_of(given, dict(zip(names, colours, strict=True))), own.values


TASKS = {
    'adapt': OwnTask(OwnAdapt, find_pictures),
    'depth': OwnTask(OwnDepth, find_depth),
    'detection': OwnTask(OwnObjects, find_objects),
    'instance': OwnTask(OwnObjects, partial(find_objects, outlines=True)),
    'oriented': OwnTask(OwnOriented, partial(find_objects, oriented=True)),
    'realtime': OwnTask(OwnRealtime, find_objects),
    'realtime_masks': OwnTask(OwnRealtime, partial(find_objects, outlines=True)),
    'semantic': OwnTask(OwnSemantic, find_semantic),
}
