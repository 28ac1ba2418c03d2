"""Headers of image files: size, bands, type, colours, pages, and whether the file is whole."""

import logging
import math
import os
import struct
import warnings
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import cv2
import numpy as np
from PIL import Image, UnidentifiedImageError
from PIL.ImageFile import ImageFile
from PIL.TiffImagePlugin import COMPRESSION_INFO, ImageFileDirectory_v2

from .band_files import BandFile

MOST_PIXELS, MOST_SIDE = 2**30, 2**20  # of an image decoded as a whole: OpenCV's limits
Image.MAX_IMAGE_PIXELS = MOST_PIXELS
# It says that a TIFF has many bands, which are read otherwise.
logging.getLogger('PIL.TiffImagePlugin').setLevel(logging.CRITICAL)
TIFF = (b'II*\0', b'MM\0*', b'II+\0', b'MM\0+')
ARRAY_START = b'\x93NUMPY'
ORIENTATION = 274  # the tag of EXIF and of TIFF
DEFLATE = 1032  # the largest factor by which deflate compresses
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of PNG's colour types
PHOTOMETRIC = {
    0: 'inverted grey', 1: 'grey', 2: 'rgb', 3: 'palette', 5: 'cmyk', 6: 'ycbcr',
    8: 'cielab', 32803: 'bayer', 32845: 'logluv', 34892: 'raw', -1: '',
}  # fmt: skip
GDAL_COLOURS = {
    ('gray',): 'grey',
    ('red', 'green', 'blue'): 'rgb',
    ('palette',): 'palette',
}
DAMAGED = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    KeyError,
    struct.error,
    UserWarning,
)
ENDS = {
    'JPEG': b'\xff\xd9',
    'MPO': b'\xff\xd9',
    'GIF': b'\0;',
}  # among the last ten bytes
SAMPLES = {1: 'uint', 2: 'int', 3: 'float', 4: 'uint', 5: 'complex', 6: 'complex'}
ALPHAS = {1: 'premultiplied', 2: 'alpha'}


@dataclass(frozen=True)
class Header:
    """Properties of an image file; JSON by ``dataclasses.astuple``."""

    height: int  # in pixels, of the image as it is shown: rotated as EXIF says
    width: int
    orientation: int = 1  # EXIF's, 1 to 8
    format: str = ''  # Pillow's name, 'NPY', or GDAL's name of what only GDAL reads
    bands: int = 3  # of a pixel, of the first page
    dtype: str = (
        'uint8'  # as stored: 'bool', 'uint4', 'float32' ...; 'mixed' if bands differ
    )
    photometric: str = (
        'rgb'  # 'grey', 'inverted grey' (0 is white), 'palette' ...; '' if not said
    )
    alpha: str = ''  # of the last band: 'alpha', 'premultiplied', 'other' (without meaning) or ''
    planar: bool = False  # band after band instead of pixel after pixel
    # Of TIFF: 'raw', 'lzw', ...; 'odd tiles' for raw tiles of no multiple of 1024 bytes, which
    # OpenCV does not read from memory; 'sparse' without some of the pixels.
    compression: str = ''
    pages: int = 1  # without reduced copies and masks of a TIFF; frames of an animation
    no_data: str = ''  # the value of missing pixels, as the file says it
    max_value: int | None = (
        None  # the largest value, as a TIFF says it (MaxSampleValue)
    )

    @property
    def is_deep(self) -> bool:
        """Return whether a picture has 16 bits a channel."""
        return self.dtype == 'uint16'


def read_header(path: Path) -> Header:
    """Read the header of an image, of any size, without its pixels.

    Only a file whose end says nothing is decoded: a JPEG with an unusual end, and rare formats.
    OSError if the file cannot be opened, ValueError if it is no image, or is cut off.
    """
    with open(path, 'rb') as file:
        start = file.read(8)
        try:
            if start[:4] in TIFF:
                return read_tiff(file)
            if start[:6] != ARRAY_START:
                return read_by_pillow(file)
        except UnidentifiedImageError as error:
            if path.suffix.lower() in Image.registered_extensions():
                raise ValueError(f'{path}: cannot be read as an image') from error
        except (EOFError, IndexError) as error:
            raise ValueError(f'{path}: is cut off') from error
        except DAMAGED as error:
            if isinstance(error, OSError) and error.errno:
                raise
            raise ValueError(f'{path}: cannot be read as an image ({error})') from error
    with closing(
        BandFile(path)
    ) as opened:  # an array, or a format that only GDAL reads
        found, parts = opened.header, opened.parts[:1]
        colours = tuple(colour.name for part in parts for colour in part.colorinterp)
        name = parts[0].driver if parts else 'NPY'
    alpha = 'alpha' if colours[-1:] == ('alpha',) else ''
    photometric = GDAL_COLOURS.get(colours[:-1] if alpha else colours, '')
    return Header(
        found.height, found.width, 1, name, found.bands, found.dtype, photometric, alpha
    )


def read_by_pillow(file: BinaryIO) -> Header:
    """``read_header`` of the formats of Pillow but for TIFF; EOFError if it is cut off."""
    file.seek(0)
    Image.MAX_IMAGE_PIXELS = None  # no pixel is decoded
    try:
        image = Image.open(file)
    finally:
        Image.MAX_IMAGE_PIXELS = MOST_PIXELS
    name, mode, bands = str(image.format), image.mode, image.getbands()
    dtype = {'1': 'bool', 'I': 'int32', 'F': 'float32'}.get(mode, 'uint8')
    dtype = 'uint16' if mode.startswith('I;16') else dtype
    pages = (
        1 if name == 'MPO' else getattr(image, 'n_frames', 1)
    )  # MPO: a JPEG and its variants
    if name == 'PNG':
        bits, colours, content = png_bits_colour_exif(file)
        dtype = 'bool' if bits == 1 else f'uint{bits}'
        bands = (
            bands if CHANNELS[colours] != 2 else ('L', 'A')
        )  # of 16 bits Pillow says RGBA
        exif = Image.Exif()
        exif.load(content)
    elif is_whole(file, image):
        exif = image.getexif()
    else:
        raise EOFError
    alpha = 'alpha' if bands[-1] in 'Aa' else ''
    shown = {'P': 'palette', 'R': 'rgb', 'C': 'cmyk', 'Y': 'ycbcr'}.get(
        bands[0], 'grey'
    )
    size = shown_size(image.height, image.width, exif.get(ORIENTATION))
    return Header(*size, name, len(bands), dtype, shown, alpha, pages=pages)


def shown_size(height: int, width: int, orientation: object) -> tuple[int, int, int]:
    """Height and width as an orientation shows them, and the orientation; 1 for none."""
    number = (
        orientation
        if isinstance(orientation, int) and orientation in range(1, 9)
        else 1
    )
    return (width, height, number) if number > 4 else (height, width, number)


def check_pixel_count(path: str | Path, height: int, width: int) -> None:
    """Raise ValueError for an image of more pixels than are decoded as a whole."""
    if height * width > MOST_PIXELS or max(height, width) > MOST_SIDE:
        raise ValueError(
            f'{path}: {width} x {height} pixels, of at most 2^30 that are decoded as a whole: cut '
            'it into tiles (rope-dense predict-large reads it a few rows at a time)'
        )


def png_bits_colour_exif(file: BinaryIO) -> tuple[int, int, bytes]:
    """Bits, colour type and EXIF of a PNG, for whose EXIF Pillow would decode the pixels."""
    size, name, exif = file.seek(0, os.SEEK_END), b'', b''
    file.seek(16)
    width, height, bits, colours = struct.unpack('>IIBB', file.read(10))
    if size * DEFLATE < width * height * bits * CHANNELS[colours] // 8:
        raise EOFError
    file.seek(8)
    while name != b'IEND':
        start = file.read(8)
        length, name = int.from_bytes(start[:4], 'big'), start[4:]
        end = file.tell() + length + 4
        if len(start) < 8 or end > size:
            raise EOFError
        exif = file.read(length) if name == b'eXIf' else exif
        file.seek(end)
    return bits, colours, exif


def is_whole(file: BinaryIO, image: ImageFile) -> bool:
    """Return whether a file has its end, by lengths that it states, or else by decoding it."""
    size = file.seek(0, os.SEEK_END)
    file.seek(-min(10, size), os.SEEK_END)
    name, end = str(image.format), file.read()
    if name in ENDS and ENDS[name] in end:
        return True
    if name == 'WEBP':
        file.seek(4)
        return size >= int.from_bytes(file.read(4), 'little') + 8
    if name == 'BMP' and image.tile[0][0] == 'raw':
        settings: Any = image.tile[0][3]
        return size >= image.tile[0][2] + settings[1] * image.height
    file.seek(0)
    try:
        if name == 'GIF':  # OpenCV reads nothing of one without an end
            return (
                cv2.imdecode(np.frombuffer(file.read(), np.uint8), cv2.IMREAD_COLOR)
                is not None
            )
        with Image.open(file) as anew:
            anew.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError, cv2.error):
        return False
    return True


def read_tiff(file: BinaryIO) -> Header:
    """``read_header`` of TIFF and BigTIFF, of any tags; EOFError if it is cut off."""
    with warnings.catch_warnings():
        warnings.simplefilter('error', UserWarning)  # of tags that lie beyond the end
        pages = [*tiff_pages(file)]
        size = file.seek(0, os.SEEK_END)
        for page in pages:
            starts = tag_numbers(page, 273) + tag_numbers(
                page, 324
            )  # of strips, of tiles
            lengths = tag_numbers(page, 279) + tag_numbers(page, 325) or (0,) * len(
                starts
            )
            if any(
                start + length > size
                for start, length in zip(starts, lengths, strict=True)
            ):
                raise EOFError
        first = pages[0]
        (width,), (height,), (bands,) = (
            tag_numbers(first, tag, 1) for tag in (256, 257, 277)
        )
        if not height * width * bands:
            raise ValueError('it has no pixels')
        bits, kinds = {*tag_numbers(first, 258, 1)}, {*tag_numbers(first, 339, 1)}
        dtype = f'{SAMPLES.get(min(kinds), "unknown")}{min(bits)}'
        dtype = 'bool' if dtype == 'uint1' else dtype
        (photometric,), (method,) = (
            tag_numbers(first, 262, -1),
            tag_numbers(first, 259, 1),
        )
        planar = bands > 1 and tag_numbers(first, 284) == (2,)
        compression = COMPRESSION_INFO.get(method, f'method {method}').removeprefix(
            'tiff_'
        )
        tile = tag_numbers(first, 322) + tag_numbers(first, 323)
        pixel = min(bits) * (1 if planar else bands)
        if tile and method == 1 and math.prod(tile) * pixel % 2**13:
            compression = 'odd tiles'
        if 0 in tag_numbers(first, 279) + tag_numbers(first, 325):
            compression = 'sparse'
        extra, most = tag_numbers(first, 338), tag_numbers(first, 281)
        return Header(
            *shown_size(height, width, tag_numbers(first, ORIENTATION, 1)[0]),
            format='TIFF',
            bands=bands,
            dtype=dtype if len(bits) == len(kinds) == 1 else 'mixed',
            photometric=PHOTOMETRIC.get(photometric, f'tag {photometric}'),
            alpha=ALPHAS.get(extra[-1], 'other') if extra else '',
            planar=planar,
            compression=compression,
            pages=sum(not tag_numbers(page, 254, 0)[0] & 5 for page in pages) or 1,
            no_data=str(first.get(42113, '')).strip('\0 '),
            max_value=max(most, default=None),
        )


def tiff_pages(file: BinaryIO) -> Iterator[ImageFileDirectory_v2]:
    """The directories of a TIFF; EOFError if one lies beyond the end of the file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    start = file.read(16)
    start = start if start[2:4] in (b'+\0', b'\0+') else start[:8]
    place, seen = ImageFileDirectory_v2(start).next, set[int]()
    while place and place not in seen:
        if place + 2 > size:
            raise EOFError
        seen.add(place)
        file.seek(place)
        page = ImageFileDirectory_v2(start)
        page.load(file)
        yield page
        place = page.next


def tag_numbers(
    page: ImageFileDirectory_v2, tag: int, *default: int
) -> tuple[int, ...]:
    """The integers of a tag."""
    found = page.get(tag, default)
    return tuple(map(int, found if isinstance(found, tuple) else (found,)))
