"""Pictures: images that OpenCV decodes rightly as blue, green and red.

Asked by training, prediction and large images before any decoder sees a file. All other images
are read by ``own.channels``, see ``LoadBands``. Checked with rasterio for bands 1 to 5 of five
types, five photometric tags, both layouts and four compressions (tests/field/test_field_images.py).
"""

from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ...utils.configs import DOCS
from .band_files import TYPES, open_raster
from .headers import ALPHAS, Header, check_pixel_count

if find_spec('rasterio'):
    from rasterio.errors import RasterioIOError

ALPHA_FORMATS = ('PNG', 'WEBP', 'BMP', 'AVIF', 'HEIF')  # whose fourth band is an alpha
READ = {  # compressions that OpenCV reads
    'raw', 'odd tiles', 'ccitt', 'group3', 'group4', 'lzw', 'jpeg', 'adobe_deflate', 'deflate',
    'packbits',
}  # fmt: skip
ONE_BAND = {('grey', 1), ('inverted grey', 1), ('palette', 1)}
# Photometric tag and number of bands of a TIFF, by its type.
PICTURES = {
    'bool': ONE_BAND,
    'uint4': {('palette', 1)},
    'uint8': {*ONE_BAND, ('rgb', 3), ('rgb', 4), ('ycbcr', 3), ('cmyk', 4)},
    'uint16': {('grey', 1), ('rgb', 3), ('rgb', 4)},
}
OTHER_TYPES = {'bool', 'uint2', 'uint4', 'uint8'}  # of PNG and other formats than TIFF
# Types that own.channels reads, in some of the bits of a file, too.
CONVERTED = {f'uint{bits}' for bits in range(2, 17)}
CONVERTED.update(TYPES, ('bool', 'float16', 'float24'))


def check_picture(path: Path, header: Header, by_opencv: bool = True) -> None:
    """Raise ValueError unless a file is a picture; the message has the ``own.channels`` to read it.

    The alpha of a TIFF is read, a block at a time.

    Args:
        by_opencv: it is decoded as a whole by OpenCV, which refuses too many pixels; else by GDAL,
            of any size, compression and layout.
    """
    if not is_picture(header, by_opencv):
        raise ValueError(no_picture_text(path, header))
    has_alpha = (header.photometric, header.bands) == ('rgb', 4)
    if has_alpha and header.format not in ALPHA_FORMATS and not is_alpha(path):
        why = 'tagged as alpha, with other values than 0 and full'
        raise ValueError(no_picture_text(path, header, why))
    if by_opencv:
        check_pixel_count(path, header.height, header.width)


def is_picture(header: Header, by_opencv: bool) -> bool:
    """Return whether an image is a picture by its header.

    Three bands are colours by their tag only. OpenCV multiplies colours by an alpha, takes the
    first of several bands for grey, and does not invert 16 bits.
    """
    kind = (header.photometric, header.bands)
    dtype = header.dtype
    packed = header.compression
    if header.format == 'NPY' or not header.photometric:
        return False
    if header.format != 'TIFF':
        is_read = dtype in OTHER_TYPES or (header.format, dtype) == ('PNG', 'uint16')
        return is_read and kind != ('grey', 3) and header.bands <= 4
    if by_opencv:
        is_cmyk = kind == ('cmyk', 4)
        if packed not in READ:
            return False
        if header.planar and (dtype == 'uint16' or is_cmyk):
            return False
        if (packed, header.photometric) == ('odd tiles', 'inverted grey'):
            return False
        if packed == 'jpeg' and is_cmyk:
            return False
    elif dtype in ('uint2', 'uint4'):
        dtype = 'bool'
    has_alpha = header.alpha in ALPHAS.values()
    return kind in PICTURES.get(dtype, ()) and has_alpha == (kind == ('rgb', 4))


def is_alpha(path: Path) -> bool:
    """Return whether the fourth band is nothing but 0 and full: GDAL tags infrared as alpha."""
    with closing(open_raster(path)) as file:
        values = (0, np.iinfo(file.dtypes[3]).max)
        try:
            for _, window in file.block_windows(4):
                if not np.isin(file.read(4, window=window), values).all():
                    return False
        except RasterioIOError as error:
            raise ValueError(f'{path}: cannot be read as an image ({error})') from error
    return True


def no_picture_text(path: Path, header: Header, why: str = '') -> str:
    """The line for an image that is no picture."""
    bands = header.bands
    reasons = [why]
    if header.format == 'TIFF':
        if bands == 1:
            bands = header.pages
        if header.photometric != ('grey' if bands < 3 else 'rgb'):
            reasons.append(f'tagged as {header.photometric}')
        if header.planar:
            reasons.append('band after band')
        if header.compression not in READ:
            reasons.append(f'compression: {header.compression}')
    plural = 's' if bands > 1 else ''
    said = f'{path}: {bands} band{plural} of {header.dtype}, no picture'
    if header.dtype not in CONVERTED:
        return f'{said}: convert it to one of {", ".join(TYPES)}'
    chosen = [1, 2, 3] if bands == 3 else bands
    said += f': give own.channels={chosen}, or names or numbers of bands ({DOCS}/channels.md)'
    said_why = ', '.join(filter(None, reasons))
    return f'{said}; {said_why}' if said_why else said
