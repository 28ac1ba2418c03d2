"""A data.yaml of YOLO, or darknet's obj.data: splits, names of classes, key points."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..classes import read_classes
from .files import IMAGE_SUFFIXES, class_names, parts_of, read_text, read_yaml
from .inventory import Inventory
from .places import SPLITS

ABSENT = ('', '~', 'null', 'Null', 'NULL', 'None')  # as the text of a yaml
YAML = ('.yaml', '.yml')
LISTS = ('.txt', '.names', '.labels')  # of files with a name of a class in each line
LISTS_OF_NAMES = ('classes.txt', 'labels.txt')
KPT_SHAPE = re.compile(r'[1-9]\d* [23]')
# Folders above label files outside the data set that may have names of classes.
ABOVE = 3
# Of a declaration, by which two are of one data set.
KEYS = ('path', 'names', *SPLITS['train'], *SPLITS['val'])


def find_declaration(
    folder: Path,
    inventory: Inventory,
) -> tuple[Path, dict[str, Any]] | None:
    """The file in a folder that declares a YOLO data set, and its content; ValueError for two."""
    for suffixes in (YAML, ('.data',)):
        found = {}
        said = []
        for path in inventory.directly(folder, suffixes):
            content = read_declaration(path)
            has_classes = 'names' in content or 'nc' in content
            if has_classes and any(split_entries(content, split) for split in SPLITS):
                found[path] = content
                said.append([*map(content.get, KEYS)])
        if any(one != said[0] for one in said):
            names = ', '.join(path.name for path in found)
            raise ValueError(
                f'{folder} has {names}, which declare different data sets: leave one'
            )
        if found:
            return next(iter(found.items()))
    return None


def read_declaration(path: Path) -> dict[str, Any]:
    """The content of a yaml, or of KEY = VALUE; {} if it is none, or broken and has no `names`."""
    if path.suffix.lower() == '.data':
        content = {}
        for line in read_text(path).splitlines():
            key, sign, value = line.partition('=')
            if sign:
                name = key.strip()
                content['nc' if name == 'classes' else name] = value.strip()
        return content
    try:
        given = read_yaml(path)
    except ValueError:
        if 'names:' in read_text(path):
            raise
        return {}
    if isinstance(given, dict):
        return given
    return {}


def split_entries(content: Mapping[str, Any], split: str) -> list[str]:
    """Folders and lists of the images of a split, by the first of its names that has some."""
    for name in SPLITS[split]:
        given = content.get(name)
        items = given if isinstance(given, list) else [given]
        texts = [item for item in items if isinstance(item, str)]
        found = [text for text in texts if text not in ABSENT]
        if found:
            return found
    return []


def key_points(file: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """``kpt_shape`` of pose labels, (points, numbers a point), as options of the labels."""
    given = content.get('kpt_shape')
    if given is None or given in ABSENT or given == []:
        return {}
    numbers = ''
    if isinstance(given, list):
        numbers = ' '.join(map(str, given))
    if not KPT_SHAPE.fullmatch(numbers):
        raise ValueError(
            f'{file}: kpt_shape is {given!r:.80}; it is [points, 2 or 3], as [17, 3]'
        )
    return dict(kpt_shape=tuple(map(int, given)))


def find_folder(entry: str, content: Mapping[str, Any], file: Path, root: Path) -> Path:
    """A folder or list that a file declares; ValueError if it is nowhere, or inside and outside.

    What is in the data set comes first: paths are written on another machine (`path`, absolute
    paths, folders of a project), and Roboflow writes `../train/images`.
    """
    name = entry.replace('\\', '/')
    base = str(content.get('path', '')).replace('\\', '/')
    base = '' if base in ABSENT else base
    homes = [Path(os.path.normpath(file.parent / base)), file.parent]
    exact = [Path(os.path.normpath(home / name)) for home in homes]
    paths = [*exact]
    parts = parts_of(name)
    for home in (*homes, root):
        paths += [home.joinpath(*parts[start:]) for start in range(len(parts))]
    inside = []
    outside = []
    for path in dict.fromkeys(paths):
        is_list = path.suffix.lower() not in IMAGE_SUFFIXES and os.path.exists(path)
        if is_list or os.path.isdir(path):
            if path.is_relative_to(root):
                inside.append(path)
            elif path in exact:
                outside.append(path)
    if not inside and not outside:
        raise ValueError(
            f'{file}: {entry!r:.200} is no folder and no list of images: looked for '
            f'{" and ".join(dict.fromkeys(map(str, exact)))}, and for its end in {root}'
        )
    if inside and outside and '..' not in name.split('/'):
        raise ValueError(
            f'{file}: {entry!r} is {outside[0]} or {inside[0]}: correct `path`'
        )
    return (inside or outside)[0]


def class_names_of(
    content: Mapping[str, Any],
    file: Path,
    sources: Iterable[Path],
    inventory: Inventory,
) -> tuple[str, ...]:
    """The names that a file declares, in order.

    ValueError unless they are as many as `nc`, and the same as in lists beside the file, or in
    folders of label files and above.
    """
    given = content.get('names')
    is_yaml = file.suffix.lower() != '.data'
    if given is None:
        found = read_names_above([file.parent], inventory)
        if found is None:
            raise ValueError(f'{file} has no `names` of the classes')
        names, _ = found
    elif is_yaml:
        names = listed_names(given, file)
    else:
        place = find_folder(str(given), content, file, inventory.root)
        names, _ = read_classes(place)
    count = str(content.get('nc', ''))
    if count not in ABSENT and count != str(len(names)):
        raise ValueError(f'{file}: nc is {count}, and `names` has {len(names)} classes')
    if not is_yaml:
        return names
    homes = []
    for source in sources:
        above = [source, *source.parents]
        homes += [home for home in above if inventory.root in home.parents]
    homes.append(file.parent)
    for home in dict.fromkeys(homes):
        for path, listed in read_names_in(home, inventory, LISTS).items():
            if listed != names:
                raise ValueError(
                    f'{file} and {path} number the classes differently: leave the one that fits '
                    'the numbers in the label files'
                )
    return names


def listed_names(given: object, file: Path) -> tuple[str, ...]:
    """The names of a list, or of a name for each number from 0; ValueError if it is neither."""
    if isinstance(given, dict):
        if not all(re.fullmatch(r'\d+', str(key)) for key in given):
            raise ValueError(
                f'{file}: a key of `names` is no class number: {[*given][:5]!s:.80}'
            )
        by_number = {int(key): name for key, name in given.items()}
        lacking = sorted(set(range(len(given))) - by_number.keys())
        if lacking:
            raise ValueError(
                f'{file}: `names` has the class numbers {", ".join(map(str, sorted(by_number)))}; '
                f'they have to be 0 to {len(given) - 1}: {lacking[0]} is missing'
            )
        given = [by_number[number] for number in range(len(given))]
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise ValueError(
            f'{file}: `names` is {given!r:.80}: give a list, or lines as "0: cat"'
        )
    return class_names(given, file)


def read_names_above(
    folders: Iterable[Path],
    inventory: Inventory,
) -> tuple[tuple[str, ...], dict[str, Any]] | None:
    """The names of the classes in the file nearest to label files, and the options that it says.

    ValueError if the nearest files of the folders differ, or files in one folder.
    """
    found = dict[tuple[str, ...], Path]()
    for folder in folders:
        above = [folder, *folder.parents]
        inside = [home for home in above if home.is_relative_to(inventory.root)]
        if inside and inventory.asked:  # perhaps of a split alone
            inside.append(inventory.root.parent)
        for home in inside or above[: ABOVE + 1]:
            lists = read_names_in(home, inventory)
            for path, names in lists.items():
                found.setdefault(names, path)
            if lists:
                break
    if len(found) > 1:
        files = ' and '.join(map(str, found.values()))
        raise ValueError(
            f'{files} have different classes: leave one that fits all label files'
        )
    for names, file in found.items():
        content = {} if file.suffix.lower() in LISTS else read_declaration(file)
        return names, key_points(file, content)
    return None


def read_names_in(
    folder: Path,
    inventory: Inventory,
    suffixes: tuple[str, ...] = LISTS + YAML,
) -> dict[Path, tuple[str, ...]]:
    """The names of the classes in each file of a folder that has some.

    That is classes.txt, labels.txt of makesense.ai, NAME.names of darknet, NAME.labels of Roboflow,
    or a yaml with `names`.
    """
    found = {}
    for path in inventory.directly(folder, suffixes):
        if path.suffix.lower() in YAML:
            given = read_declaration(path).get('names')
            if isinstance(given, (list, dict)):
                found[path] = listed_names(given, path)
        elif path.suffix.lower() != '.txt' or path.name.lower() in LISTS_OF_NAMES:
            found[path], _ = read_classes(path)
    return found
