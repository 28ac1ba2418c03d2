"""CreateML of Apple, as Roboflow, labelImg and RectLabel write it: a JSON list of images.

A box has its centre and its sides in pixels, see
https://developer.apple.com/documentation/createml/building-an-object-detector-data-source.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from .files import errors_at, finite_numbers, read_json
from .inventory import Inventory
from .label_folder import Format, LabelFolder, Read, Split
from .objects import Labelled, Report, Shape
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
    labelled = {
        file: [image for _, image, _ in read_objects(file, shared) if image is not None]
        for file in map(Path, files)
    }
    if not any(labelled.values()):
        raise ValueError(f'{files[0]}: none of its images is in {inventory.root}')
    return LabelFolder(CREATEML, *shared.split(labelled))


def read_createml(part: Split, classes: Sequence[str] | None, report: Report) -> Read:
    """The images with an entry; one without annotations has no objects."""

    def items() -> Iterator[Labelled]:
        shared = SharedFiles(FILES, part.inventory)
        for file, why in label_files(part, FILES.suffixes).items():
            for name, image, shapes in read_objects(file, shared):
                if image is not None and part.takes(image):
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
    keys = {key.lower() for one in content if isinstance(one, dict) for key in one}
    return content if keys.intersection(IMAGE) and keys.intersection(OBJECTS) else None


def read_objects(
    file: Path, shared: SharedFiles
) -> Iterator[tuple[str, Path | None, list[Shape]]]:
    """Name, image if it is there, and objects of each entry; ValueError for a broken one."""
    entries = read_entries(file) or []
    beside, images = shared.inventory.images(file.parent), shared.images_for(file)
    for number, entry in enumerate(entries, start=1):
        with errors_at(file), errors_at(where := f'{file.name}, entry {number}'):
            given = (
                {x.lower(): one for x, one in entry.items()}
                if isinstance(entry, dict)
                else {}
            )
            name = next((given[key] for key in IMAGE if given.get(key)), None)
            objects: Any = next((given[key] for key in OBJECTS if given.get(key)), [])
            if not isinstance(name, str) or not isinstance(objects, list):
                raise ValueError(
                    f'it is {entry!r:.80}, not {{"image": ..., "annotations": [...]}}'
                )
            shapes = [
                shape_of(x, f'{where}, annotation {n}')
                for n, x in enumerate(objects, 1)
            ]
        name = unquote(urlsplit(name).path) if '://' in name else name
        image = beside.by_path.get(name) or images.find(name) or beside.find_alike(name)
        if image is None and len(entries) == 1:  # renamed together with its file
            image = beside.by_stem.get(file.stem)
        yield name, image, shapes


def shape_of(given: Any, where: str) -> Shape:
    """The box of an annotation."""
    with errors_at(where):
        if not isinstance(given, dict) or not isinstance(
            given.get('coordinates'), dict
        ):
            raise ValueError(
                f'it is {given!r:.80}, without "coordinates" of x, y, width, height'
            )
        label, box = given.get('label'), given['coordinates']
        if not isinstance(label, (str, int)) or not str(label).strip():
            raise ValueError(f'its label is {label!r:.80}, which is no name')
        x, y, width, height = (
            finite_numbers([box[k]], k)[0] for k in ('x', 'y', 'width', 'height')
        )
        if 0 < max(x, y, width, height) <= 1:
            raise ValueError(
                'its coordinates are fractions of the image size: CreateML has pixels'
            )
        return Shape(
            str(label), (x - width / 2, y - height / 2, width, height), where=where
        )


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
