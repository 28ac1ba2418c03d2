"""Masks and depth maps as files that belong to images: lists of pairs, pages and sizes."""

from __future__ import annotations

import contextlib
import json
import struct
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from .images.band_files import band_header
from .labels.image_headers import header
from .pairs import Kind, Pair, match

NO_PAGE = 5  # bits of TIFF's tag 254: a smaller copy (GDAL's overviews), or a mask of transparency
SUBFILE = 254
TIFF, BIG = (b'II*\0', b'MM\0*', b'II+\0'), 43  # how a TIFF begins, and the byte of a BigTIFF
MAX_PIXELS = 2**30  # of an image that OpenCV decodes


def load_pairs(
    ann_file: str,
    images: str,
    maps: str,
    kind: Kind,
    part: str | None = None,
    channels: Sequence[str] = (),
) -> list[Pair]:
    """The images of a data set, each with its mask or depth map.

    Args:
        ann_file: JSON file {"pairs": [[image, map], ...]}, paths that are absolute or in the
            folders; else all files of the folders are matched by their names, or those that a list
            of names has.
        images, maps: folders of both.
        part, channels: see ``Match.pairs`` and ``Kind``, where names are matched.

    Raises:
        ValueError: a list that cannot be read, or see ``match``.
    """
    if not ann_file.endswith('.json'):
        kind = replace(kind, channels=tuple(channels))
        return match(Path(images), Path(maps), kind).pairs(ann_file, part)
    try:
        with open(ann_file, encoding='utf-8') as file:
            pairs = json.load(file)['pairs']
        return [(Path(images, image), Path(maps, of_image)) for image, of_image in pairs]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f'{ann_file}: no list of images and {kind.title}s, {{"pairs": [["a.jpg", "a.png"], '
            f'...]}} ({type(error).__name__}: {error})'
        ) from error


def check_header(
    image: Path, of_image: Path, title: str, shape: tuple[int, ...] | None = None
) -> None:
    """Compare the headers of an image and of its mask or depth map; no pixel is decoded.

    Args:
        title: of the map, in words.
        shape: height and width of the map, if they are known.

    Raises:
        ValueError: a header cannot be read, the sizes differ, or the map has several pages.
    """
    if shape is None:
        found = header(of_image)
        shape = found.height, found.width
    expected = header(image)
    if expected.orientation > 4 and shape == (expected.width, expected.height) != shape[::-1]:
        raise ValueError(
            f'{of_image} has the size of {image} before its EXIF orientation is applied: rotate '
            f'the {title}, or save the image as it is shown'
        )
    check_size(of_image, shape, dict(img_path=image, ori_shape=(expected.height, expected.width)))
    if expected.height * expected.width > MAX_PIXELS:
        raise ValueError(f'{of_image} has {shape[0]} x {shape[1]} pixels: cut it and its image up')
    if (pages := count_pages(of_image)) > 1:
        raise ValueError(f'{of_image} has {pages} pages: save one page, the {title} of its image')


def check_size(path: Path, shape: tuple[int, ...], results: Mapping[str, Any]) -> None:
    """Raise ValueError if the size of a map is not the size of its image, where that is known."""
    if shape != results.get('ori_shape', shape):
        raise ValueError(
            f'{path} and its image {results["img_path"]} differ in size, {shape} and '
            f'{results["ori_shape"]} (height, width)'
        )


def count_pages(path: Path) -> int:
    """The number of frames of an image; of a TIFF the pages that are no copies of another.

    A page may have pixels that Pillow does not read. 1 for files that are none of Pillow's.
    """
    try:
        with path.open('rb') as file:
            start = file.read(8)
            if not start.startswith(TIFF):
                with Image.open(path) as image:
                    return getattr(image, 'n_frames', 1)
            start += file.read(8) if start[2] == BIG else b''
            tags, places, pages = ImageFileDirectory_v2(start), set[int](), 0
            while tags.next and tags.next not in places:
                places.add(tags.next)
                file.seek(tags.next)
                tags.load(file)
                pages += not tags.get(SUBFILE, 0) & NO_PAGE
            return pages
    except (OSError, SyntaxError, EOFError, struct.error):
        return 1


def why_unread(path: Path, error: object) -> str:
    """The type and number of the bands of a TIFF that has no usual ones, else the error."""
    if path.suffix.lower() in ('.tif', '.tiff'):
        with contextlib.suppress(ValueError, OSError):
            found = band_header(path)
            if found.bands > 1 or found.dtype not in ('uint8', 'uint16', 'int16', 'float32'):
                return f'{found.bands} band{"s" * (found.bands > 1)} of {found.dtype}'
    return textwrap.shorten(str(error), 120) or type(error).__name__
