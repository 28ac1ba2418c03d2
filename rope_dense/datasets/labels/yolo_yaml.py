"""A data.yaml of YOLO, or darknet's obj.data: splits, names of classes, key points."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..classes import read_classes
from .files import IMAGE_SUFFIXES, class_names, parts_of, read_text, read_yaml
from .inventory import Inventory
from .pairs import SPLITS

ABSENT = ('', '~', 'null', 'Null', 'NULL', 'None')  # as the text of a yaml
DECLARATIONS = (('.yaml', '.yml'), ('.data',))
LISTS = ('.txt', '.names', '.labels')  # of files with a name of a class in each line
LISTS_OF_NAMES = ('classes.txt', 'labels.txt')
KPT_SHAPE = re.compile(r'[1-9]\d* [23]')
ABOVE = 3  # folders above label files outside the data set that may have names of classes
KEYS = [name for names in SPLITS.values() for name in names]


def declaration_in(folder: Path, inventory: Inventory) -> Path | None:
    """The file in a folder that declares a YOLO data set, or None; ValueError if two differ."""
    for suffixes in DECLARATIONS:
        contents = {path: content_of(path) for path in inventory.directly(folder, suffixes)}
        found = {path: content for path, content in contents.items() if is_data_set(content)}
        said = [[one.get(key) for key in ('path', 'names', *KEYS)] for one in found.values()]
        if any(one != said[0] for one in said):
            names = ', '.join(path.name for path in found)
            raise ValueError(f'{folder} has {names}, which declare different data sets: leave one')
        if found:
            return next(iter(found))
    return None


def content_of(path: Path) -> Any:
    """The content of a yaml, or of KEY = VALUE; None if it is broken and has no `names`."""
    if path.suffix.lower() == '.data':
        pairs = [line.partition('=') for line in read_text(path).splitlines()]
        content = {key.strip(): value.strip() for key, sign, value in pairs if sign}
        return {'nc' if key == 'classes' else key: value for key, value in content.items()}
    try:
        return read_yaml(path)
    except ValueError:
        if 'names:' in read_text(path):
            raise
        return None


def is_data_set(content: object) -> bool:
    """Return whether the content of a file declares a YOLO data set."""
    if not isinstance(content, dict) or not content.keys() & {'names', 'nc'}:
        return False
    return any(entries(content, split) for split in SPLITS)


def entries(content: Mapping[str, Any], split: str) -> list[str]:
    """Folders and lists of the images of a split, by the first of its names that has some."""
    for name in SPLITS[split]:
        given = content.get(name)
        items = given if isinstance(given, list) else [given]
        if found := [item for item in items if isinstance(item, str) and item not in ABSENT]:
            return found
    return []


def check_lists(
    file: Path, names: Sequence[str], sources: Iterable[Path], inventory: Inventory
) -> None:
    """Refuse a yaml whose names differ from a list beside it or the labels, or above these."""
    above = [home for source in sources for home in (source, *source.parents)]
    inside = [home for home in above if inventory.root in home.parents]
    for path in (
        x for home in dict.fromkeys([*inside, file.parent]) for x in inventory.directly(home, LISTS)
    ):
        if (listed := names_in(path)) and listed != tuple(names):
            raise ValueError(
                f'{file} and {path} number the classes differently: leave the one that fits the '
                'numbers in the label files'
            )


def key_points(file: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """``kpt_shape`` of pose labels, (points, numbers a point), as options of the labels."""
    given = content.get('kpt_shape')
    if given is None or given in ABSENT or given == []:
        return {}
    if not isinstance(given, list) or not KPT_SHAPE.fullmatch(' '.join(map(str, given))):
        raise ValueError(f'{file}: kpt_shape is {given!r:.80}; it is [points, 2 or 3], as [17, 3]')
    return dict(kpt_shape=tuple(map(int, given)))


def options_in(file: Path) -> dict[str, Any]:
    """The options of labels that a file with names of classes says."""
    content = content_of(file) if file.suffix.lower() in DECLARATIONS[0] else {}
    return key_points(file, content)


def located(entry: str, content: Mapping[str, Any], file: Path, root: Path) -> Path:
    """A folder or list that a file declares.

    What is in the data set comes first: paths are written on another machine (`path`, absolute
    paths, folders of a project), and Roboflow writes `../train/images`.

    Raises:
        ValueError: it is nowhere, or in the data set and outside.
    """
    name, base = entry.replace('\\', '/'), str(content.get('path', '')).replace('\\', '/')
    homes = [file.parent / ('' if base in ABSENT else base), file.parent]
    homes = [Path(os.path.normpath(home)) for home in homes]
    exact = [Path(os.path.normpath(home / name)) for home in homes]
    parts = parts_of(name)
    loose = [home.joinpath(*parts[n:]) for home in (*homes, root) for n in range(len(parts))]
    paths = [path for path in dict.fromkeys([*exact, *loose]) if os.path.exists(path)]
    there = [path for path in paths if path.is_dir() or path.suffix.lower() not in IMAGE_SUFFIXES]
    inside = [path for path in there if path == root or root in path.parents]
    outside = [path for path in there if path in exact and path not in inside]
    if not inside and not outside:
        raise ValueError(
            f'{file}: {entry!r:.200} is no folder and no list of images: looked for '
            f'{" and ".join(dict.fromkeys(map(str, exact)))}, and for its end in {root}'
        )
    if inside and outside and '..' not in name.split('/'):
        raise ValueError(
            f'{file}: {entry!r} is {outside[0]}, but {inside[0]} is there, too: correct `path`'
        )
    return (inside or outside)[0]


def class_names_of(content: Mapping[str, Any], file: Path, inventory: Inventory) -> tuple[str, ...]:
    """The names that a file declares, in order; ValueError unless they are as many as `nc`."""
    given = content.get('names')
    if given is None:
        if (found := names_above(file.parent, inventory)) is None:
            raise ValueError(f'{file} has no `names` of the classes')
        names = found[1]
    elif file.suffix.lower() == '.data':
        names = read_classes(located(str(given), content, file, inventory.root))[0]
    else:
        names = listed_names(given, file)
    count = str(content.get('nc', ''))
    if count not in ABSENT and count != str(len(names)):
        raise ValueError(f'{file}: nc is {count}, and `names` has {len(names)} classes')
    return names


def listed_names(given: object, file: Path) -> tuple[str, ...]:
    """The names of a list, or of a name for each number from 0; ValueError if it is neither."""
    if isinstance(given, dict):
        if not all(re.fullmatch(r'\d+', str(key)) for key in given):
            raise ValueError(f'{file}: a key of `names` is no class number: {[*given][:5]!s:.80}')
        by_number = {int(key): name for key, name in given.items()}
        if lacking := sorted(set(range(len(given))) - by_number.keys()):
            raise ValueError(
                f'{file}: `names` has the class numbers {", ".join(map(str, sorted(by_number)))}; '
                f'they have to be 0 to {len(given) - 1}: {lacking[0]} is missing'
            )
        given = [by_number[number] for number in range(len(given))]
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise ValueError(
            f'{file}: `names` is {given!r:.80}: give a list, or a line for each class, as "0: cat"'
        )
    return class_names(given, file)


def names_above(folder: Path, inventory: Inventory) -> tuple[Path, tuple[str, ...]] | None:
    """The file with names of classes nearest to label files, in their folder or above, and these.

    That is classes.txt, labels.txt of makesense.ai, NAME.names of darknet, NAME.labels of Roboflow,
    or a yaml with `names`.

    Raises:
        ValueError: files in one folder differ.
    """
    above = [folder, *folder.parents]
    homes = [home for home in above if home.is_relative_to(inventory.root)]
    for home in homes or above[: ABOVE + 1]:
        given = inventory.directly(home, (*LISTS, *DECLARATIONS[0]))
        found = {path: names for path in given if (names := names_in(path))}
        if len(set(found.values())) > 1:
            raise ValueError(f'{" and ".join(map(str, found))} have different classes: leave one')
        if found:
            return next(iter(found.items()))
    return None


def names_in(path: Path) -> tuple[str, ...] | None:
    """The names of the classes in a file; None if it is not a file of names."""
    if path.suffix.lower() not in DECLARATIONS[0]:
        is_list = path.suffix.lower() != '.txt' or path.name.lower() in LISTS_OF_NAMES
        return read_classes(path)[0] if is_list else None
    content = content_of(path)
    given = content.get('names') if isinstance(content, dict) else None
    return listed_names(given, path) if isinstance(given, (list, dict)) else None
