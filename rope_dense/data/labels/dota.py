"""DOTA: a text file for each image, a line for each object: four corners, class, difficulty.

See https://captain-whu.github.io/DOTA/dataset.html. Many own data sets have no difficulty: whether
lines have it is decided once for a data set.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ..classes import CLASSES_FILE, read_classes
from .files import errors_at, finite_numbers, read_numbered_lines
from .geometry import polygon_shape
from .inventory import Inventory
from .label_folder import Format, LabelFolder, Read, Split
from .objects import Labelled, Report, Shape
from .pairs import find_pairs, read_pairs
from .places import FileKind
from .splits import split_files

HEAD = ('imagesource', 'gsd')
# mmrotate's img_split.py writes 2 for what a patch cuts, and pandas 1.0 for 1.
DIFFICULTIES = {'0': 0, '1': 1, '2': 2, '0.0': 0, '1.0': 1, '2.0': 2}
# Folders of the same objects as upright boxes.
HORIZONTAL = re.compile(r'hbb|task2|reclabel', re.I)
ABOVE = 4  # folders, from the label files on, in which classes.txt may be


def find_dota(inventory: Inventory) -> LabelFolder | None:
    """labelTxt/, labelTxt-v1.5/ or annfiles/ beside images/, for all images or for each split."""
    pairs = find_pairs(inventory, FILES)
    if pairs is None:
        pairs = find_pairs(inventory, replace(FILES, is_one=is_text))
    if pairs is None:
        return None
    parts, by = split_files(pairs, inventory)
    options = dict(difficulty=has_difficulty([*map(Path, sorted(pairs.files))]))
    for split, part in parts.items():
        parts[split] = replace(part, options=options)
    return LabelFolder(DOTA, parts, by)


def read_dota(part: Split, classes: Sequence[str] | None, report: Report) -> Read:
    """The images of a split that have a label file, which may be empty."""
    has = part.options.get('difficulty')
    if has is None:
        has = has_difficulty([*part.files.pairs, *part.files.orphans])
    kind = 'without a difficulty in its lines'
    if has:
        kind = 'with a difficulty behind each class'
    report.note(f'folder of labels {kind}', '/'.join(part.source.parts[-2:]))

    def read(path: Path, image: Path) -> Labelled:
        lines = read_object_lines(path)
        item = Labelled(image, [shape_in(path, *line, has) for line in lines])
        for _, line in read_numbered_lines(path):
            name, _, value = line.partition(':')
            if name.lower() == 'gsd':
                item.gsd = value
        return item

    def count(path: Path) -> int | None:
        return sum(has_corners(line) for _, line in read_object_lines(path)) or None

    return classes or (), read_pairs(part, FILES, report, read, count)


def is_text(path: Path) -> bool:
    """Return whether a text file may have labels."""
    return path.name.lower() != CLASSES_FILE


def is_oriented(path: Path) -> bool:
    """Return whether a text file may have labels, and not of the same objects as upright boxes."""
    return is_text(path) and not HORIZONTAL.search('/'.join(path.parts[-4:-1]))


def read_object_lines(path: Path) -> Iterator[tuple[str, str]]:
    """(place, line) of each object, without the head of source and ground sample distance."""
    for where, line in read_numbered_lines(path):
        if not line.lower().startswith(HEAD):
            yield where, line


def has_corners(line: str) -> bool:
    """Return whether a line begins with the numbers of four corners, and goes on."""
    words = line.split()
    try:
        corners = [*map(float, words[:8])]
    except ValueError:
        return False
    return len(words) > len(corners) == 8


def shape_in(path: Path, where: str, line: str, has_difficulty: bool) -> Shape:
    """The object of a line, difficult above 0; ValueError if words are missing."""
    words = line.split()
    with errors_at(path.with_name(where)):
        if len(words) < 9 + has_difficulty:
            rest = 'class'
            if has_difficulty:
                rest = 'class, difficulty'
            raise ValueError(
                f'{len(words)} words; give x and y of four corners, {rest}'
            )
        corners = finite_numbers(words[:8], 'a corner')
        name = words[8:]
        last = '0'
        if has_difficulty:
            last = name.pop()
        if last not in DIFFICULTIES:
            raise ValueError(
                f'ends with {last!r}, where other lines have a difficulty, 0, 1 or 2'
            )
        is_difficult = DIFFICULTIES[last] > 0
        return polygon_shape(' '.join(name), corners, crowd=is_difficult, where=where)


def has_difficulty(files: Sequence[Path]) -> bool:
    """Return whether the lines of files end with a difficulty, and not with the class.

    They do if each ends with 0, 1 or 2 and several classes are left without that word. If only one
    is left, it has difficulties if all are 0 or mmrotate's script wrote the files; without any 0,
    the number is of the class ('type 1', 'type 2'). In doubt, as with numbers of 0 and above 2,
    classes.txt decides; ValueError without one.
    """
    # The first place of each end of a line, behind the corners.
    places = dict[str, str]()
    for path in files:
        for where, line in read_object_lines(path):
            if has_corners(line):  # the reader refuses other lines
                end = ' '.join(line.split()[8:])
                places.setdefault(end, str(path.with_name(where)))
    names = {}
    numbers = set()
    whole = {}
    for end in places:
        name, _, last = end.rpartition(' ')
        if name and last in DIFFICULTIES:
            names[end] = name
            numbers.add(DIFFICULTIES[last])
        if name and last.isdecimal():
            whole[int(last)] = name
    classes = {*names.values()}
    if len(names) < len(places):
        num_names = len({*whole.values()})
        is_odd = 0 in whole and max(whole) > 2 and num_names > 1
        are_classes = 0 not in numbers or len(classes) < 2
        if are_classes and not is_odd and classes.isdisjoint(places):
            return False
    elif len(classes) != 1 or numbers == {0}:
        return bool(classes)
    elif any('annfiles' in path.parts for path in files):
        return True
    elif 0 not in numbers:
        return False
    for folder in {file.parent.absolute() for file in files}:
        for home in (folder, *folder.parents)[:ABOVE]:
            listing = home / CLASSES_FILE
            if listing.is_file():
                listed, _ = read_classes(listing)
                return not places.keys() <= {*listed}
    odd, other = sorted(places, key=lambda end: (end in names, end))[:2]
    raise ValueError(
        f'{places[odd]} ends with {odd!r} and {places[other]} with {other!r}: is the number a '
        'difficulty, which each line has to have, or of the class? Write the names of the classes '
        f'to {min(files).parent / CLASSES_FILE}'
    )


FOLDERS = r'labeltxt.*|annfiles|dota-v.*'
FILES = FileKind(
    'DOTA', 'a label file', ('.txt',), FOLDERS, is_one=is_oriented, is_apart=True
)
DOTA = Format(
    'dota', 'DOTA', ('.txt',), find_dota, read_dota, FILES, lists_classes=False
)
