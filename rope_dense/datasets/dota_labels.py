"""Reader of DOTA's labels (https://captain-whu.github.io/DOTA/dataset.html)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from .label_readers import (
    NO_IMAGE,
    Labelled,
    Odd,
    Read,
    Shape,
    image_files,
    numbered_lines,
    numbers_of,
    polygon_shape,
)


def read_dota(source: Path, folder: Path, classes: Sequence[str] | None, odd: Odd) -> Read:
    """A text file for each image, a line for each object: four corners, class, difficulty.

    Lines with the source of the image and the ground sample distance may head it. An image without
    a file is not labelled.
    """

    def items() -> Iterator[Labelled]:
        files = image_files(folder)
        for path in sorted(source.rglob('*.txt')):
            file = files.get(path.relative_to(source).with_suffix('').as_posix())
            if file is None:
                odd.add(NO_IMAGE, path.name)
                continue
            lines = [x for x in numbered_lines(path) if not x[1].lower().startswith(DOTA_HEAD)]
            yield Labelled(file, [dota_shape(line, where) for where, line in lines])

    return classes or (), items()


DOTA_HEAD = ('imagesource', 'gsd')


def dota_shape(line: str, where: str) -> Shape:
    """The object of one line; it is difficult above 0, and not if nothing says so."""
    words = line.split()
    if len(words) < 9:
        raise ValueError(f'{where}: {len(words)} words; give four corners, class, difficulty')
    corners, name = numbers_of(words[:8], where), words[8:]
    difficulty = int(name.pop()) if len(name) > 1 and name[-1].isdigit() else 0
    return polygon_shape(' '.join(name), corners, difficult=difficulty > 0, where=where)
