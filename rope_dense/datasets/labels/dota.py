"""DOTA: a text file for each image, a line for each object: four corners, class, difficulty.

See https://captain-whu.github.io/DOTA/dataset.html. Many own data sets have no difficulty: whether
lines have it is decided once for a data set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ..classes import CLASSES_FILE, read_classes
from .dota_folders import label_texts, splits_in, texts_of
from .files import Images, finite, naming, numbered_lines
from .geometry import polygon_shape
from .label_files import images_of, reason_without
from .objects import Format, LabelFolder, Labelled, Labels, Read, Report, Shape

HEAD = ('imagesource', 'gsd')
# mmrotate's img_split.py writes 2 for what a patch cuts, and pandas 1.0 for 1.
DIFFICULTIES = {'0': 0, '1': 1, '2': 2, '0.0': 0, '1.0': 1, '2.0': 2}
ABOVE = 4  # folders, from the label files on, in which classes.txt may be


def find_dota(root: Path) -> LabelFolder | None:
    """labelTxt/, labelTxt-v1.5/ or annfiles/ beside images/, for all images or for each split."""
    if (found := splits_in(root)) is None:
        return None
    splits, described = found
    options = dict(difficulty=has_difficulty({labels.source for labels in splits.values()}))
    parts = {split: replace(labels, options=options) for split, labels in splits.items()}
    return LabelFolder(DOTA, parts, described)


def read_dota(labels: Labels, classes: Sequence[str] | None, report: Report) -> Read:
    """The images of a split that have a label file, which may be empty."""
    has = labels.options.get('difficulty')
    has = has_difficulty({labels.source}) if has is None else has
    kind = 'with a difficulty behind each class' if has else 'without a difficulty in its lines'
    report.note(f'folder of labels {kind}', '/'.join(labels.source.parts[-2:]))
    return classes or (), labelled_images(labels, has, report)


def labelled_images(labels: Labels, has: bool, report: Report) -> Iterator[Labelled]:
    """The images with their objects; `has` says whether lines have a difficulty."""
    images, files = Images(labels, report), texts_of(labels)
    owned = images_of(files, images)
    taken = {*owned.values()}
    for stem, path in files.items():
        if stem in owned:
            if labels.has(owned[stem]):
                shapes = [shape_in(path, *line, has) for line in object_lines(path)]
                yield Labelled(images.by_stem[owned[stem]], shapes)
        elif count := sum(has_corners(line) for _, line in object_lines(path)):
            if labels.has(stem):
                report.leave_out(reason_without(stem, path, images, taken), path.name, count)
            else:
                report.note('label file without an image, in no split', path.name)
    for stem, file in images.chosen():
        if stem not in taken:
            report.note('image without a label file (not labelled, so left out)', file.name)


def object_lines(path: Path) -> Iterator[tuple[str, str]]:
    """(place, line) of each object, without the head of source and ground sample distance."""
    return (pair for pair in numbered_lines(path) if not pair[1].lower().startswith(HEAD))


def has_corners(line: str) -> bool:
    """Return whether a line begins with the numbers of four corners, and goes on."""
    words = line.split()
    try:
        return len([float(word) for word in words[:8]]) == 8 < len(words)
    except ValueError:
        return False


def shape_in(path: Path, where: str, line: str, has_difficulty: bool) -> Shape:
    """The object of a line; it is difficult above 0.

    Raises:
        ValueError: the line has less than four corners and a class.
    """
    words = line.split()
    with naming(path.with_name(where)):
        if len(words) < 9 + has_difficulty:
            rest = 'class, difficulty' if has_difficulty else 'class'
            raise ValueError(f'{len(words)} words; give x and y of four corners, {rest}')
        corners, name = finite(words[:8], 'a corner'), words[8:]
        last = name.pop() if has_difficulty else '0'
        if last not in DIFFICULTIES:
            raise ValueError(f'ends with {last!r}, where other lines have a difficulty, 0, 1 or 2')
        return polygon_shape(' '.join(name), corners, difficult=DIFFICULTIES[last] > 0, where=where)


def has_difficulty(sources: set[Path]) -> bool:
    """Return whether the lines in folders end with a difficulty, and not with the class.

    They do if each ends with 0, 1 or 2 and several classes are left without that word. If only one
    is left, it has difficulties if all are 0 or mmrotate's script wrote the files; without any 0,
    the number is of the class ('type 1', 'type 2'). In doubt, as with numbers of 0 and above 2,
    classes.txt decides.

    Raises:
        ValueError: nothing decides, or some lines have a difficulty and some have none.
    """
    places = ends_of(sources)
    parts = {end: end.rpartition(' ') for end in places}
    names = {end: name for end, (name, _, last) in parts.items() if name and last in DIFFICULTIES}
    classes, numbers = set(names.values()), {DIFFICULTIES[parts[end][2]] for end in names}
    whole = {int(last): name for name, _, last in parts.values() if name and last.isdecimal()}
    if len(names) < len(places):
        is_odd = 0 in whole and max(whole) > 2 and len({*whole.values()}) > 1
        if not is_odd and not classes & places.keys() and (0 not in numbers or len(classes) < 2):
            return False
    elif len(classes) != 1 or numbers == {0} or any(x.name == 'annfiles' for x in sources):
        return bool(classes)
    elif 0 not in numbers:
        return False
    if listed := listed_classes(sources):
        return not places.keys() <= listed
    odd, other = sorted(places, key=lambda end: (end in names, end))[:2]
    raise ValueError(
        f'{places[odd]} ends with {odd!r} and {places[other]} with {other!r}: is the number a '
        'difficulty, which each line has to have, or of the class? Write the names of the classes '
        f'to {min(sources) / CLASSES_FILE}'
    )


def ends_of(sources: set[Path]) -> dict[str, str]:
    """The ends of lines, behind the corners, each with its first place in the folders."""
    places: dict[str, str] = {}
    for path in (path for source in sorted(sources) for path in label_texts(source)):
        for where, line in object_lines(path):
            if has_corners(line):  # the reader refuses other lines
                places.setdefault(' '.join(line.split()[8:]), str(path.with_name(where)))
    return places


def listed_classes(sources: set[Path]) -> set[str]:
    """The names in classes.txt, in the folders or above; none if there is no such file."""
    for source in sources:
        for folder in (source, *source.absolute().parents)[:ABOVE]:
            if (file := folder / CLASSES_FILE).is_file():
                return set(read_classes(file)[0])
    return set()


DOTA = Format('dota', 'DOTA', ('.txt',), lambda inventory: find_dota(inventory.root), read_dota)
