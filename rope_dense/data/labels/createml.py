"""CreateML of Apple, as Roboflow, labelImg and RectLabel write it: a JSON list of images.

A box has its centre and its sides in pixels, see
https://developer.apple.com/documentation/createml/building-an-object-detector-data-source.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from .files import errors_at, named_numbers, read_json
from .inventory import Inventory, are_elsewhere
from .label_folder import Format, LabelFolder, Read, Split
from .objects import ELSEWHERE, Labelled, Report, Shape
from .pairs import files_with_labels
from .places import FileKind
from .shared_files import SharedFiles, label_files

IMAGE = ('image', 'imagefilename', 'imageurl', 'filename')  # keys in lower case
OBJECTS = ('annotations', 'annotation')


def find_createml(inventory: Inventory) -> LabelFolder | None:
    """A JSON file for each split, for all images, or for each image."""
    files = files_with_labels(inventory.paths(inventory.root, FILES.suffixes), FILES)
    shared = SharedFiles(FILES, inventory)
    if not files or not shared.images.by_path:
        return None
    labelled: dict[Path, list[Path]] = {}
    named = []
    for file in map(Path, files):
        labelled[file] = []
        for name, image, _ in read_objects(file, shared):
            shared.claim(file, name, image)
            named.append((file, name, image))
    for given in named:
        image = shared.claim(*given)
        if image:
            labelled[given[0]].append(image)
    if not any(labelled.values()):
        raise ValueError(f'{files[0]}: none of its images is in {inventory.root}')
    return LabelFolder(CREATEML, *shared.split(labelled))


def read_createml(part: Split, classes: Sequence[str] | None, report: Report) -> Read:
    """The images with an entry; one without annotations has no objects."""

    def items() -> Iterator[Labelled]:
        shared = SharedFiles(FILES, part.inventory)
        for file, why in label_files(part, FILES.suffixes).items():
            for name, found, shapes in read_objects(file, shared):
                image = shared.claim(file, name, found)
                if image is not None and part.takes(image):
                    if are_elsewhere(name, shared.places.of(str(image)).key):
                        report.note(ELSEWHERE, name)
                    yield Labelled(image, shapes)
                elif image is None and why:
                    report.leave_out_image(name, len(shapes))
        for note in part.files.notes:
            report.note(*note)

    return classes or (), items()


def is_createml(path: Path) -> bool:
    """Return whether a JSON file is CreateML's, or is broken and looks so."""
    try:
        return read_entries(path) is not None
    except ValueError:  # the reader says it
        return True


def read_entries(path: Path) -> list[Any] | None:
    """The entries of a file of CreateML; None for other JSON, of which only the start is read."""
    with path.open('rb') as file:
        start = file.read(64)
        if not start.lstrip(b'\xef\xbb\xbf \r\n\t').startswith(b'['):
            return None
        if not re.search(rb'"annotations?"', start + file.read()):
            return None
    content = read_json(path)
    keys = set[str]()
    for entry in content:
        if isinstance(entry, dict):
            keys.update(map(str.lower, entry))
    if keys.intersection(IMAGE) and keys.intersection(OBJECTS):
        return content
    return None


def read_objects(
    file: Path,
    shared: SharedFiles,
) -> Iterator[tuple[str, Path | None, list[Shape]]]:
    """Name, image that may be its, and objects of each entry; ValueError for a broken one."""
    entries = read_entries(file) or []
    beside = shared.inventory.images(file.parent)
    images = shared.images_for(file)
    for number, entry in enumerate(entries, start=1):
        where = f'{file.name}, entry {number}'
        with errors_at(file), errors_at(where):
            pairs = entry.items() if isinstance(entry, dict) else ()
            given = {key.lower(): value for key, value in pairs}
            name = next(filter(None, map(given.get, IMAGE)), None)
            objects: Any = next(filter(None, map(given.get, OBJECTS)), [])
            if not isinstance(name, str) or not isinstance(objects, list):
                raise ValueError(
                    f'it is {entry!r:.80}, not {{"image": ..., "annotations": [...]}}'
                )
            shapes = []
            for index, one in enumerate(objects, start=1):
                shapes.append(shape_of(one, f'{where}, annotation {index}'))
        name = unquote(urlsplit(name).path) if '://' in name else name
        image = beside.by_path.get(name) or images.find_any(name)
        image = image or beside.find_alike(name)
        if image is None and len(entries) == 1:  # renamed together with its file
            image = beside.by_stem.get(file.stem)
        yield name, image, shapes


def shape_of(given: Any, where: str) -> Shape:
    """The box of an annotation."""
    with errors_at(where):
        box = given.get('coordinates') if isinstance(given, dict) else None
        if not isinstance(box, dict):
            raise ValueError(
                f'it is {given!r:.80}, without "coordinates" of x, y, width, height'
            )
        label = given.get('label')
        if not isinstance(label, (str, int)) or not str(label).strip():
            raise ValueError(f'its label is {label!r:.80}, which is no name')
        numbers = named_numbers(box.__getitem__, 'x', 'y', 'width', 'height')
        x, y, width, height = numbers
        if 0 < max(x, y, width, height) <= 1:
            raise ValueError(
                'its coordinates are fractions of the image size: CreateML has pixels'
            )
        place = x - width / 2, y - height / 2, width, height
        return Shape(str(label), place, where=where)


WORDS = 'annotations?|labels?|jsons?|createml'
FILES = FileKind('CreateML', 'an entry', ('.json',), WORDS, is_one=is_createml)
CREATEML = Format(
    'createml',
    'CreateML',
    FILES.suffixes,
    find_createml,
    read_createml,
    shared=FILES,
    lists_classes=False,
)
