"""Headers of image files, and whether files are whole."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from ..images.band_files import ARRAY, band_header
from .objects import Header

# It says that a TIFF has many bands, which are read otherwise.
logging.getLogger('PIL.TiffImagePlugin').setLevel(logging.CRITICAL)
Image.MAX_IMAGE_PIXELS = None  # satellite images exceed the limit; only headers are read here
ENDS = dict.fromkeys(('.jpg', '.jpeg', '.jfif'), b'\xff\xd9') | {'.png': b'IEND'}
BANDS = ('.tif', '.tiff', ARRAY)  # which may have bands that Pillow cannot read
ORIENTATION = 274  # the tag of EXIF


def header(path: Path) -> Header:
    """Read the header of an image, of any size.

    Raises:
        ValueError: it is no image, or is cut off.
    """
    try:
        with Image.open(path) as image:
            width, height = image.size
            exif = png_exif(path) if image.format == 'PNG' else image.getexif()
            orientation = exif.get(ORIENTATION, 1)
            mode = image.mode
    except (OSError, UnidentifiedImageError, SyntaxError, ValueError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        if path.suffix.lower() in BANDS:
            bands = band_header(path)
            return Header(bands.height, bands.width, 1, f'{bands.bands} bands')
        raise ValueError(f'{path} cannot be read as an image ({error})') from error
    orientation = orientation if orientation in range(1, 9) else 1
    if orientation > 4:
        height, width = width, height
    return Header(height, width, orientation, mode)


def png_exif(path: Path) -> Image.Exif:
    """The EXIF data of a PNG. Pillow would decode its pixels, which the data may follow."""
    exif = Image.Exif()
    with path.open('rb') as file:
        file.seek(8)
        while len(start := file.read(8)) == 8:
            length, name = int.from_bytes(start[:4], 'big'), start[4:]
            if name == b'eXIf':
                exif.load(file.read(length))
                break
            file.seek(length + 4, os.SEEK_CUR)
    return exif


def check_end(path: Path) -> None:
    """Check that a JPEG or PNG is whole. Only one with an unusual end is decoded.

    Raises:
        ValueError: it is cut off.
    """
    end = ENDS.get(path.suffix.lower())
    if end is None:
        return
    with open(path, 'rb') as file:
        file.seek(-min(len(end) + 8, os.path.getsize(path)), os.SEEK_END)
        if end in file.read():
            return
    try:
        with Image.open(path) as image:
            image.load()
    except (OSError, SyntaxError) as error:
        raise ValueError(f'{path} is cut off ({error})') from error
