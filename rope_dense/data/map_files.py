"""Masks and depth maps as files that belong to images: lists of pairs, pages and sizes."""

import contextlib
import json
import os
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .images import headers
from .labels.inventory import Inventory
from .labels.maps import check_missing_maps
from .labels.pairs import pairs_in
from .labels.places import FileKind
from .labels.splits import Chosen, make_split

Pair = tuple[Path, Path]  # an image, and its mask or depth map
USUAL = ('uint8', 'uint16', 'int16', 'float32')  # types of a band that is read


def load_pairs(ann_file: str, images: str, maps: str, kind: FileKind) -> list[Pair]:
    """The images of a data set, each with its mask or depth map.

    Args:
        ann_file: JSON file {"pairs": [[image, map], ...]}, paths that are absolute or in the
            folders; '' for all files of the folders, matched by their names.
        images, maps: folders of both.

    Raises:
        ValueError: a list that cannot be read, two files of an image, or images without maps.
    """
    if not ann_file:
        first, second = map(Path, map(os.path.realpath, (images, maps)))
        inventory = Inventory(Path(os.path.commonpath((first, second))))
        pairs = pairs_in(kind, first, second, inventory)
        chosen = Chosen([*pairs.files], [*pairs.images])
        split = make_split(pairs, inventory, chosen)
        check_missing_maps(split, kind, inventory)
        found = split.files.pairs
        return sorted(zip(found.values(), found, strict=True))
    try:
        with open(ann_file, encoding='utf-8') as file:
            listed = json.load(file)['pairs']
        return [(Path(images, image), Path(maps, name)) for image, name in listed]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f'{ann_file}: no list of images and {kind.title}, {{"pairs": [["a.jpg", "a.png"], '
            f'...]}} ({type(error).__name__}: {error})'
        ) from error


def check_header(
    image: Path, of_image: Path, title: str, shape: tuple[int, ...] | None = None
) -> None:
    """Compare the headers of an image and of its map, called `title`; no pixel is decoded.

    ValueError if a header cannot be read, the sizes differ, or the map has several pages. The shape
    (height, width) of the map may be known already.
    """
    if shape is None:
        found = headers.read_header(of_image)
        shape = (found.height, found.width)
        pages = found.pages
        if pages > 1:
            advice = f'save one page, the {title} of its image'
            raise ValueError(f'{of_image} has {pages} pages: {advice}')
    expected = headers.read_header(image)
    size = expected.height, expected.width
    if expected.orientation > 4 and shape == size[::-1] != size:
        raise ValueError(
            f'{of_image} has the size of {image} before its EXIF orientation is applied: rotate '
            f'the {title}, or save the image as it is shown'
        )
    check_map_size(of_image, shape, dict(img_path=image, ori_shape=size))
    headers.check_pixel_count(of_image, *size)


def check_map_size(
    path: Path, shape: tuple[int, ...], results: Mapping[str, Any]
) -> None:
    """Raise ValueError if the size of a map is not the size of its image, where that is known."""
    if shape != results.get('ori_shape', shape):
        raise ValueError(
            f'{path} and its image {results["img_path"]} differ in size, {shape} and '
            f'{results["ori_shape"]} (height, width)'
        )


def why_unread(path: Path, error: object) -> str:
    """The type and number of the bands of a TIFF that has no usual ones, else the error."""
    with contextlib.suppress(ValueError, OSError):
        found = headers.read_header(path)
        if found.format == 'TIFF' and (found.bands > 1 or found.dtype not in USUAL):
            bands = 'band' if found.bands == 1 else 'bands'
            return f'{found.bands} {bands} of {found.dtype}'
    return textwrap.shorten(str(error), 120) or type(error).__name__
