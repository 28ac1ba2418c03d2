"""Names, numbers and colours of classes: classes.txt, and the table that Roboflow writes."""

import colorsys
import csv
import re
from pathlib import Path

from .labels.files import class_names, errors_at, read_numbered_lines, read_text
from .labels.places import SPLITS

Colour = tuple[int, int, int]  # red, green, blue
ClassNumbers = tuple[tuple[str, ...], list[int]]  # names, and their numbers in masks
CLASSES_FILE, CLASS_NUMBERS = 'classes.txt', '_classes.csv'
COLOUR_LIST = 'labelmap.txt'  # CVAT's, beside its masks
IGNORED = 255  # label of pixels that are neither trained nor evaluated
COLOUR_CODE = re.compile(r'(.*?\S)\s+#([0-9a-fA-F]{6})')  # road #804080
# road 128 64 128, and road:128,64,128:: of CVAT's labelmap.txt
COLOUR_NUMBERS = re.compile(r'(.*?\S)[\s,:]+(\d+)[\s,]+(\d+)[\s,]+(\d+)(?::.*)?')
NUMBERED = re.compile(r'(\d+)(?:\s*[:,;=]\s*|[.)]?\s+)(.*\S)')  # 0: road, and 0 road
LABELME_IGNORED = '__ignore__'  # a line of LabelMe's labels.txt, of the number -1
# The first line of labelmap.txt and of class_dict.csv.
HEADER = re.compile(r'# ?label:.*|name,\s*r,\s*g,\s*b', re.IGNORECASE)


def read_classes(path: Path) -> tuple[tuple[str, ...], list[Colour]]:
    """Names and colours of a classes.txt, in the order of the class numbers.

    A line is the name of a class, with a colour behind it or without: 'road #804080', or 'road 128
    64 128'. All lines may begin with their number from 0: '0: road', or '0 road'. ValueError if the
    file has no class, one of them twice, a comment, or other numbers.
    """
    names: list[str] = []
    palette: list[Colour] = []
    for _, line in read_numbered_lines(path):
        if HEADER.fullmatch(line):
            continue
        if line.startswith('#') or line == LABELME_IGNORED:
            raise ValueError(
                f'{path}: {line!r} would be class {len(names)}: remove the line'
            )
        name, colour = split_colour(line)
        names.append(name)
        palette.append(colour or distinct_colour(len(palette)))
    found = [*filter(None, map(NUMBERED.fullmatch, names))]
    if found and len(found) == len(names):
        numbers = [int(match[1]) for match in found]
        if numbers != [*range(len(names))]:
            first = ', '.join(map(str, numbers[:8]))
            advice = 'list all classes in the order of their numbers from 0'
            raise ValueError(
                f'{path}: its lines begin with the numbers {first}: {advice}'
            )
        names = [match[2] for match in found]
    return class_names(names, path), palette


def classes_file(root: Path) -> Path:
    """The list of the classes of masks, as labelme2voc or CVAT calls it where no classes.txt is."""
    for name in (CLASSES_FILE, 'class_names.txt', COLOUR_LIST):
        if (root / name).is_file():
            return root / name
    return root / CLASSES_FILE


def lists_classes(root: Path) -> bool:
    """Return whether a folder of masks says its classes and their numbers."""
    return classes_file(root).is_file() or find_class_numbers(root) is not None


def split_colour(line: str) -> tuple[str, Colour | None]:
    """The name and the colour in a line; None without a colour."""
    given = COLOUR_CODE.fullmatch(line)
    if given:
        red, green, blue = bytes.fromhex(given[2])
        return given[1], (red, green, blue)
    given = COLOUR_NUMBERS.fullmatch(line)
    if given:
        name, *numbers = given.groups()
        red, green, blue = map(int, numbers)
        if max(red, green, blue) < 256:
            return name, (red, green, blue)
    return line, None


def distinct_colour(index: int) -> Colour:
    """Colour number `index` of a sequence whose neighbours differ in hue."""
    hue = index * 0.618034 % 1
    value = (1.0, 0.75, 0.55)[index % 3]
    red, green, blue = colorsys.hsv_to_rgb(hue, 0.75, value)
    return round(255 * red), round(255 * green), round(255 * blue)


def find_class_numbers(root: Path) -> ClassNumbers | None:
    """Names of classes and their numbers in masks, from Roboflow's _classes.csv; None without one.

    ValueError for a line that is none of a class, or files that differ.
    """
    found: dict[Path, ClassNumbers] = {}
    for folder in ('.', *SPLITS['train'], *SPLITS['val']):
        path = root / folder / CLASS_NUMBERS
        if not path.is_file():
            continue
        rows = csv.reader(read_text(path).splitlines(), skipinitialspace=True)
        header = next(rows, [])
        if [name.strip().lower() for name in header] != ['pixel value', 'class']:
            raise ValueError(
                f'{path}: its first line is not "Pixel Value, Class", but {header}'
            )
        names = []
        numbers = []
        for row in filter(None, rows):
            with errors_at(f'{path}, {row}'):
                number, name = row
                numbers.append(int(number))
                names.append(name)
        found[path] = class_names(names, path), numbers
    given = [*found.values()]
    if given[1:] != given[:-1]:
        raise ValueError(
            f'{" and ".join(map(str, found))} differ: one list of classes is needed'
        )
    return given[0] if given else None
