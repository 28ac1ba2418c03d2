"""Names, numbers and colours of classes: classes.txt, and a colour for each that has none."""

from __future__ import annotations

import colorsys
import re
from pathlib import Path

from .labels.files import class_names, read_text

Colour = tuple[int, int, int]  # red, green, blue
CLASSES_FILE = 'classes.txt'
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

    A line is the name of a class, with a colour behind it or without: 'road #804080', or
    'road 128 64 128'. Classes without a colour get one unlike their neighbours.

    All lines may begin with their number from 0: '0: road', or '0 road'.

    Raises:
        ValueError: the file has no class, one of them twice, a comment, or other numbers.
    """
    names: list[str] = []
    palette: list[Colour] = []
    for line in filter(None, map(str.strip, read_text(path).splitlines())):
        if HEADER.fullmatch(line):
            continue
        if line.startswith('#') or line == LABELME_IGNORED:
            raise ValueError(f'{path}: {line!r} would be class {len(names)}: remove the line')
        name, colour = line, list[int]()
        if given := COLOUR_CODE.fullmatch(line):
            name, colour = given[1], [*bytes.fromhex(given[2])]
        elif given := COLOUR_NUMBERS.fullmatch(line):
            values = [int(value) for value in given.groups()[1:]]
            if max(values) < 256:
                name, colour = given[1], values
        names.append(name)
        red, green, blue = colour or distinct_colour(len(palette))
        palette.append((red, green, blue))
    found = [match for name in names if (match := NUMBERED.fullmatch(name))]
    if found and len(found) == len(names):
        numbers = [int(match[1]) for match in found]
        if numbers != [*range(len(names))]:
            raise ValueError(
                f'{path}: its lines begin with the numbers {", ".join(map(str, numbers[:8]))}: '
                'list all classes in the order of their numbers from 0'
            )
        names = [match[2] for match in found]
    return class_names(names, path), palette


def distinct_colour(index: int) -> Colour:
    """Colour number `index` of a sequence whose neighbours differ in hue."""
    hue = index * 0.618034 % 1
    value = (1.0, 0.75, 0.55)[index % 3]
    red, green, blue = (round(255 * part) for part in colorsys.hsv_to_rgb(hue, 0.75, value))
    return red, green, blue
