"""Names of classes beside their numbers in masks, from the table that Roboflow writes."""

from __future__ import annotations

import csv
from pathlib import Path

from .labels.files import class_names, naming, read_text
from .labels.splits import SPLITS

CLASS_NUMBERS = '_classes.csv'
HEADER = ['pixel value', 'class']


def find_class_numbers(root: Path) -> tuple[tuple[str, ...], list[int]] | None:
    """Names of classes and their numbers in masks, from Roboflow's _classes.csv; None without one.

    Raises:
        ValueError: a line that is none of a class, or files that differ.
    """
    folders = [root, *(root / name for names in SPLITS.values() for name in names)]
    found: dict[Path, tuple[tuple[str, ...], list[int]]] = {}
    for path in (folder / CLASS_NUMBERS for folder in folders):
        if not path.is_file():
            continue
        header, *rows = [*csv.reader(read_text(path).splitlines(), skipinitialspace=True)] or [[]]
        if [name.strip().lower() for name in header] != HEADER:
            raise ValueError(f'{path}: its first line is not "Pixel Value, Class", but {header}')
        names, numbers = list[str](), list[int]()
        for row in filter(None, rows):
            with naming(f'{path}, {row}'):
                number, name = row
                numbers.append(int(number))
                names.append(name)
        found[path] = class_names(names, path), numbers
    if len({(names, *numbers) for names, numbers in found.values()}) > 1:
        raise ValueError(f'{" and ".join(map(str, found))} differ: one list of classes is needed')
    return next(iter(found.values()), None)
