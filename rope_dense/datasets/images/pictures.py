"""What a picture is: images that OpenCV decodes rightly as blue, green and red.

Asked by training, prediction and large images before any decoder sees a file. All other images
are read by ``own.channels``, see ``LoadBands``. Checked with rasterio for bands 1 to 5 of five
types, five photometric tags, both layouts and four compressions (tests/field/test_field_images.py).
"""

from __future__ import annotations

from contextlib import closing
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from .band_files import TYPES, open_raster, unreadable
from .headers import ALPHAS, Header, check_size

if find_spec('rasterio'):
    import rasterio

ALPHA_FORMATS = ('PNG', 'WEBP', 'BMP', 'AVIF', 'HEIF')  # whose fourth band is an alpha
READ = {
    *('raw', 'odd tiles', 'ccitt', 'group3', 'group4', 'lzw', 'jpeg', 'adobe_deflate', 'deflate'),
    'packbits',
}  # by OpenCV
# Photometric tag and number of bands of a TIFF, by its type.
PICTURES = {
    'bool': {('grey', 1), ('inverted grey', 1), ('palette', 1)},
    'uint4': {('palette', 1)},
    'uint8': {
        *(('grey', 1), ('inverted grey', 1), ('palette', 1), ('rgb', 3), ('rgb', 4)),
        *(('ycbcr', 3), ('cmyk', 4)),
    },
    'uint16': {('grey', 1), ('rgb', 3), ('rgb', 4)},
}
OTHER_TYPES = {'bool', 'uint2', 'uint4', 'uint8'}  # of PNG and other formats than TIFF


def check_picture(path: Path, header: Header) -> None:
    """Check that a file is a picture and can be decoded as a whole.

    Raises:
        ValueError: it is no picture; the message has the ``own.channels`` that read it. Or it has
            too many pixels.
    """
    check_kind(path, header)
    check_size(path, header.height, header.width)


def check_kind(path: Path, header: Header, by_opencv: bool = True) -> None:
    """``check_picture`` of any size. A TIFF with an alpha is read, a block at a time.

    Args:
        by_opencv: see ``is_picture``.
    """
    if not is_picture(header, by_opencv):
        raise ValueError(no_picture(path, header))
    has_alpha = (header.photometric, header.bands) == ('rgb', 4)
    is_known = not has_alpha or header.format in ALPHA_FORMATS
    if not is_known and not is_alpha(path, path.stat().st_mtime_ns):
        why = 'tagged as alpha, with other values than 0 and full'
        raise ValueError(no_picture(path, header, why))


def is_picture(header: Header, by_opencv: bool = True) -> bool:
    """Return whether an image is a picture, by its header, that OpenCV decodes rightly.

    Three bands are colours by their tag only. OpenCV multiplies colours by an alpha, takes the
    first of several bands for grey, and does not invert 16 bits.

    Args:
        by_opencv: False for a picture that GDAL decodes, of any compression and layout.
    """
    if header.format == 'NPY' or not header.photometric:
        return False
    kind, dtype = (header.photometric, header.bands), header.dtype
    if header.format != 'TIFF':
        is_deep = header.format == 'PNG' and dtype == 'uint16'
        return kind != ('grey', 3) and header.bands <= 4 and (is_deep or dtype in OTHER_TYPES)
    is_misread = (
        header.compression not in READ
        or (header.planar and (dtype == 'uint16' or kind == ('cmyk', 4)))
        or (header.compression == 'odd tiles' and header.photometric == 'inverted grey')
        or (header.compression == 'jpeg' and kind == ('cmyk', 4))
    )
    if by_opencv and is_misread:
        return False
    dtype = 'bool' if dtype in ('uint2', 'uint4') and not by_opencv else dtype
    has_alpha = header.alpha in ALPHAS.values()
    return kind in PICTURES.get(dtype, ()) and has_alpha == (kind == ('rgb', 4))


@lru_cache(256)
def is_alpha(path: Path, changed: int) -> bool:
    """Return whether the fourth band is nothing but 0 and full: GDAL tags infrared as alpha.

    Args:
        changed: time of the file, by which the result is cached.
    """
    with closing(open_raster(path)) as file:
        values = (0, np.iinfo(file.dtypes[3]).max)
        try:
            return all(
                bool(np.isin(file.read(4, window=window), values).all())
                for _, window in file.block_windows(4)
            )
        except rasterio.errors.RasterioIOError as error:
            raise unreadable(path, error) from error


def no_picture(path: Path, header: Header, why: str = '') -> str:
    """The line for an image that is no picture."""
    pages = header.pages if header.bands == 1 and header.format == 'TIFF' else 1
    bands = header.bands * pages
    said = f'{path}: {bands} band{"s" if bands > 1 else ""} of {header.dtype}, no picture'
    if header.format == 'TIFF':
        is_usual = header.photometric == ('grey' if bands < 3 else 'rgb')
        tag = '' if is_usual else f'tagged as {header.photometric}'
        layout = 'band after band' if header.planar else ''
        packed = '' if header.compression in READ else f'compression: {header.compression}'
        why = ', '.join(filter(None, (why, tag, layout, packed)))
    types = {*TYPES, 'bool', *(f'uint{bits}' for bits in range(2, 17)), 'float16', 'float24'}
    if header.dtype not in types:
        return f'{said}: convert it to one of {", ".join(TYPES)}'
    chosen = [1, 2, 3] if bands == 3 else bands
    said += f': give own.channels={chosen}, or names or numbers of bands (docs/channels.md)'
    return f'{said}; {why}' if why else said
