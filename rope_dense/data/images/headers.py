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
# Among the last ten bytes.
ENDS = {
    'JPEG': b'\xff\xd9',
    'MPO': b'\xff\xd9',
    'GIF': b'\0;',
}
SAMPLES = {1: 'uint', 2: 'int', 3: 'float', 4: 'uint', 5: 'complex', 6: 'complex'}
# Of Pillow's modes; others have 8 or 16 bits.
MODES = {'1': 'bool', 'I': 'int32', 'F': 'float32'}
# Of the first band of a mode; others are grey.
COLOURS = {'P': 'palette', 'R': 'rgb', 'C': 'cmyk', 'Y': 'ycbcr'}
ALPHAS = {1: 'premultiplied', 2: 'alpha'}


@dataclass(frozen=True)
class Header:
    """Properties of an image file; JSON by ``dataclasses.astuple``."""

    height: int  # in pixels, of the image as it is shown: rotated as EXIF says
    width: int
    orientation: int = 1  # EXIF's, 1 to 8
    format: str = ''  # Pillow's name, 'NPY', or GDAL's name of what only GDAL reads
    bands: int = 3  # of a pixel, of the first page
    # As stored: 'bool', 'uint4', 'float32' ...; 'mixed' if bands differ.
    dtype: str = 'uint8'
    # 'grey', 'inverted grey' (0 is white), 'palette' ...; '' if not said.
    photometric: str = 'rgb'
    alpha: str = ''  # of the last band: 'alpha', 'premultiplied', 'other' (without meaning) or ''
    planar: bool = False  # band after band instead of pixel after pixel
    # Of TIFF: 'raw', 'lzw', ...; 'odd tiles' for raw tiles of no multiple of 1024 bytes, which
    # OpenCV does not read from memory; 'sparse' without some of the pixels.
    compression: str = ''
    pages: int = 1  # without reduced copies and masks of a TIFF; frames of an animation
    no_data: str = ''  # the value of missing pixels, as the file says it
    max_value: int | None = None  # the largest, as a TIFF says it (MaxSampleValue)

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
    # An array, or a format that only GDAL reads.
    name = 'NPY'
    colours: tuple[str, ...] = ()
    with closing(BandFile(path)) as opened:
        found = opened.header
        for part in opened.parts[:1]:
            name = part.driver
            colours = tuple(colour.name for colour in part.colorinterp)
    alpha = ''
    if colours[-1:] == ('alpha',):
        alpha = 'alpha'
        colours = colours[:-1]
    return Header(
        found.height,
        found.width,
        format=name,
        bands=found.bands,
        dtype=found.dtype,
        photometric=GDAL_COLOURS.get(colours, ''),
        alpha=alpha,
    )


def read_by_pillow(file: BinaryIO) -> Header:
    """``read_header`` of the formats of Pillow but for TIFF; EOFError if it is cut off."""
    file.seek(0)
    Image.MAX_IMAGE_PIXELS = None  # no pixel is decoded
    try:
        image = Image.open(file)
    finally:
        Image.MAX_IMAGE_PIXELS = MOST_PIXELS
    name = str(image.format)
    mode = image.mode
    bands = image.getbands()
    dtype = 'uint16' if mode.startswith('I;16') else MODES.get(mode, 'uint8')
    # A MPO is a JPEG and its variants.
    pages = 1 if name == 'MPO' else getattr(image, 'n_frames', 1)
    if name == 'PNG':
        bits, colours, content = png_bits_colour_exif(file)
        dtype = 'bool' if bits == 1 else f'uint{bits}'
        if CHANNELS[colours] == 2:
            bands = ('L', 'A')  # of 16 bits Pillow says RGBA
        exif = Image.Exif()
        exif.load(content)
    elif is_whole(file, image):
        exif = image.getexif()
    else:
        raise EOFError
    return Header(
        *shown_size(image.height, image.width, exif.get(ORIENTATION)),
        format=name,
        bands=len(bands),
        dtype=dtype,
        photometric=COLOURS.get(bands[0], 'grey'),
        alpha='alpha' if bands[-1] in 'Aa' else '',
        pages=pages,
    )


def shown_size(height: int, width: int, orientation: object) -> tuple[int, int, int]:
    """Height and width as an orientation shows them, and the orientation; 1 for none."""
    if not isinstance(orientation, int) or orientation not in range(1, 9):
        return height, width, 1
    if orientation > 4:
        return width, height, orientation
    return height, width, orientation


def check_pixel_count(path: str | Path, height: int, width: int) -> None:
    """Raise ValueError for an image of more pixels than are decoded as a whole."""
    if height * width > MOST_PIXELS or max(height, width) > MOST_SIDE:
        raise ValueError(
            f'{path}: {width} x {height} pixels, of at most 2^30 that are decoded as a whole: cut '
            'it into tiles (rope-dense predict-large reads it a few rows at a time)'
        )


def png_bits_colour_exif(file: BinaryIO) -> tuple[int, int, bytes]:
    """Bits, colour type and EXIF of a PNG, for whose EXIF Pillow would decode the pixels."""
    size = file.seek(0, os.SEEK_END)
    file.seek(16)
    width, height, bits, colours = struct.unpack('>IIBB', file.read(10))
    if size * DEFLATE < width * height * bits * CHANNELS[colours] // 8:
        raise EOFError
    file.seek(8)
    name = b''
    exif = b''
    while name != b'IEND':
        start = file.read(8)
        name = start[4:]
        length = int.from_bytes(start[:4], 'big')
        end = file.tell() + length + 4
        if len(start) < 8 or end > size:
            raise EOFError
        if name == b'eXIf':
            exif = file.read(length)
        file.seek(end)
    return bits, colours, exif


def is_whole(file: BinaryIO, image: ImageFile) -> bool:
    """Return whether a file has its end, by lengths that it states, or else by decoding it."""
    size = file.seek(0, os.SEEK_END)
    file.seek(-min(10, size), os.SEEK_END)
    end = file.read()
    name = str(image.format)
    if name in ENDS and ENDS[name] in end:
        return True
    if name == 'WEBP':
        file.seek(4)
        return size >= int.from_bytes(file.read(4), 'little') + 8
    if name == 'BMP' and image.tile[0][0] == 'raw':
        _, _, start, layout = image.tile[0]
        settings: Any = layout
        return size >= start + settings[1] * image.height
    file.seek(0)
    try:
        if name == 'GIF':  # OpenCV reads nothing of one without an end
            content = np.frombuffer(file.read(), np.uint8)
            return cv2.imdecode(content, cv2.IMREAD_COLOR) is not None
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
        first = pages[0]
        size = file.seek(0, os.SEEK_END)
        for page in pages:
            # Of strips, of tiles.
            starts = tag_numbers(page, 273) + tag_numbers(page, 324)
            lengths = tag_numbers(page, 279) + tag_numbers(page, 325)
            lengths = lengths or (0,) * len(starts)
            for start, length in zip(starts, lengths, strict=True):
                if start + length > size:
                    raise EOFError
        (width,) = tag_numbers(first, 256, 1)
        (height,) = tag_numbers(first, 257, 1)
        (bands,) = tag_numbers(first, 277, 1)
        if not height * width * bands:
            raise ValueError('it has no pixels')
        bits = set(tag_numbers(first, 258, 1))
        kinds = set(tag_numbers(first, 339, 1))
        dtype = f'{SAMPLES.get(min(kinds), "unknown")}{min(bits)}'
        if dtype == 'uint1':
            dtype = 'bool'
        if len(bits) > 1 or len(kinds) > 1:
            dtype = 'mixed'
        (photometric,) = tag_numbers(first, 262, -1)
        planar = bands > 1 and tag_numbers(first, 284) == (2,)
        extra = tag_numbers(first, 338)
        return Header(
            *shown_size(height, width, tag_numbers(first, ORIENTATION, 1)[0]),
            format='TIFF',
            bands=bands,
            dtype=dtype,
            photometric=PHOTOMETRIC.get(photometric, f'tag {photometric}'),
            alpha=ALPHAS.get(extra[-1], 'other') if extra else '',
            planar=planar,
            compression=compression_of(first, min(bits) * (1 if planar else bands)),
            pages=sum(not tag_numbers(page, 254, 0)[0] & 5 for page in pages) or 1,
            no_data=str(first.get(42113, '')).strip('\0 '),
            max_value=max(tag_numbers(first, 281), default=None),
        )


def compression_of(page: ImageFileDirectory_v2, pixel: int) -> str:
    """``Header.compression`` of a page of a TIFF whose pixels have so many bits in one place."""
    (method,) = tag_numbers(page, 259, 1)
    if 0 in tag_numbers(page, 279) + tag_numbers(page, 325):
        return 'sparse'
    tile = tag_numbers(page, 322) + tag_numbers(page, 323)
    if tile and method == 1 and math.prod(tile) * pixel % 2**13:
        return 'odd tiles'
    name = COMPRESSION_INFO.get(method, f'method {method}')
    return name.removeprefix('tiff_')


def tiff_pages(file: BinaryIO) -> Iterator[ImageFileDirectory_v2]:
    """The directories of a TIFF; EOFError if one lies beyond the end of the file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    start = file.read(16)
    if start[2:4] not in (b'+\0', b'\0+'):
        start = start[:8]
    place = ImageFileDirectory_v2(start).next
    seen = set()
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
    page: ImageFileDirectory_v2,
    tag: int,
    *default: int,
) -> tuple[int, ...]:
    """The integers of a tag."""
    found = page.get(tag, default)
    if not isinstance(found, tuple):
        return (int(found),)
    return tuple(map(int, found))
