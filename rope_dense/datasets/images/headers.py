"""Headers of image files: size, bands, type, colours, pages, and whether the file is whole."""

from __future__ import annotations

import logging
import os
import struct
import warnings
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

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
    **{0: 'inverted grey', 1: 'grey', 2: 'rgb', 3: 'palette', 5: 'cmyk', 6: 'ycbcr'},
    **{8: 'cielab', 32803: 'bayer', 32845: 'logluv', 34892: 'raw', -1: ''},
}
DAMAGED = (OSError, SyntaxError, ValueError, TypeError, KeyError, struct.error, UserWarning)
SAMPLES = {1: 'uint', 2: 'int', 3: 'float', 4: 'uint', 5: 'complex', 6: 'complex'}
ALPHAS = {1: 'premultiplied', 2: 'alpha'}


@dataclass(frozen=True)
class Header:
    """Properties of an image file; JSON by ``dataclasses.astuple``.

    Attributes:
        height, width: in pixels, of the image as it is shown: rotated as EXIF says.
        orientation: EXIF's, 1 to 8; 1 if the file says none.
        format: Pillow's name, 'NPY', or GDAL's name in lower case for what only GDAL reads.
        bands: of a pixel, of the first page.
        dtype: as stored: 'bool' (1 bit), 'uint4', 'uint8', 'uint12', 'int16', 'float32', ...;
            'mixed' if bands differ.
        photometric: 'grey', 'inverted grey' (0 is white), 'rgb', 'palette', 'cmyk', ...; '' if the
            file does not say it.
        alpha: of the last band: 'alpha', 'premultiplied', 'other' (an extra band without meaning)
            or ''.
        planar: the file has band after band instead of pixel after pixel.
        compression: of TIFF: 'raw', 'lzw', ...; 'odd tiles' for raw tiles of no multiple of 1024
            bytes, which OpenCV does not read from memory; 'sparse' for a file without some of its
            pixels. '' of other formats.
        pages: number, without reduced copies and masks of a TIFF; frames of an animation.
        no_data: the value of missing pixels, as the file says it; '' for none.
        max_value: the largest value, as a TIFF says it (MaxSampleValue).
    """

    height: int
    width: int
    orientation: int = 1
    format: str = ''
    bands: int = 3
    dtype: str = 'uint8'
    photometric: str = 'rgb'
    alpha: str = ''
    planar: bool = False
    compression: str = ''
    pages: int = 1
    no_data: str = ''
    max_value: int | None = None

    @property
    def is_deep(self) -> bool:
        """Whether a picture has 16 bits a channel."""
        return self.dtype == 'uint16'


def read_header(path: Path) -> Header:
    """Read the header of an image, of any size, without its pixels.

    Only a file whose end says nothing is decoded: a JPEG with an unusual end, and rare formats.

    Raises:
        OSError: the file cannot be opened.
        ValueError: it is no image, or is cut off.
    """
    with open(path, 'rb') as file:
        start = file.read(8)
        if start[:6] == ARRAY_START:
            return header_by_bands(path)
        try:
            return read_tiff(file) if start[:4] in TIFF else read_by_pillow(file)
        except UnidentifiedImageError as error:
            if path.suffix.lower() not in Image.registered_extensions():
                return header_by_bands(path)
            raise ValueError(f'{path}: cannot be read as an image') from error
        except (EOFError, IndexError) as error:
            raise ValueError(f'{path}: is cut off') from error
        except DAMAGED as error:
            if isinstance(error, OSError) and error.errno:
                raise
            raise ValueError(f'{path}: cannot be read as an image ({error})') from error


def header_by_bands(path: Path) -> Header:
    """``read_header`` of .npy and of formats that only GDAL reads."""
    with closing(BandFile(path)) as file:
        bands, colours = file.header, file.colours
    photometric = {('gray',): 'grey', ('red', 'green', 'blue'): 'rgb', ('palette',): 'palette'}
    alpha = 'alpha' if colours[-1:] == ('alpha',) else ''
    shown = photometric.get(colours[:-1] if alpha else colours, '')
    size = bands.height, bands.width
    return Header(*size, 1, file.driver, bands.bands, bands.dtype, shown, alpha)


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
    pages = 1 if name == 'MPO' else getattr(image, 'n_frames', 1)  # MPO: a JPEG and its variants
    if name == 'PNG':  # Pillow would decode the pixels, which EXIF may follow
        chunks = png_chunks(file)
        bits, colours = chunks[b'IHDR'][8:10]
        raw = image.width * image.height * bits * CHANNELS[colours] // 8
        if b'IEND' not in chunks or sum(chunks[b'IDAT']) * DEFLATE < raw:
            raise EOFError
        dtype = 'bool' if bits == 1 else f'uint{bits}'
        bands = bands if CHANNELS[colours] != 2 else ('L', 'A')  # of 16 bits Pillow says RGBA
        exif = Image.Exif()
        exif.load(chunks.get(b'eXIf', b''))
    elif is_whole(file, image):
        exif = image.getexif()
    else:
        raise EOFError
    alpha = 'alpha' if bands[-1] in 'Aa' else ''
    shown = {'P': 'palette', 'R': 'rgb', 'C': 'cmyk', 'Y': 'ycbcr'}.get(bands[0], 'grey')
    height, width, orientation = shown_size(image.height, image.width, exif.get(ORIENTATION))
    return Header(height, width, orientation, name, len(bands), dtype, shown, alpha, pages=pages)


def shown_size(height: int, width: int, orientation: object) -> tuple[int, int, int]:
    """Height and width as an orientation shows them, and the orientation; 1 for none."""
    number = orientation if isinstance(orientation, int) and orientation in range(1, 9) else 1
    return (width, height, number) if number > 4 else (height, width, number)


def check_size(path: str | Path, height: int, width: int) -> None:
    """Raise ValueError for an image of more pixels than are decoded as a whole."""
    if height * width > MOST_PIXELS or max(height, width) > MOST_SIDE:
        raise ValueError(
            f'{path}: {width} x {height} pixels, of at most 2^30 that are decoded as a whole: cut '
            'it into tiles (rope-dense predict-large reads it a few rows at a time)'
        )


def png_chunks(file: BinaryIO) -> dict[bytes, Any]:
    """The chunks of a PNG by their names: the lengths of IDAT, of others the content."""
    chunks: dict[bytes, Any] = {b'IDAT': []}
    size = file.seek(0, os.SEEK_END)
    file.seek(8)
    while b'IEND' not in chunks and len(start := file.read(8)) == 8:
        length, name = int.from_bytes(start[:4], 'big'), start[4:]
        end = file.tell() + length + 4
        if end > size:
            break
        if name == b'IDAT':
            chunks[name].append(length)
        elif name in (b'IHDR', b'eXIf', b'IEND'):
            chunks[name] = file.read(length)
        file.seek(end)
    return chunks


def is_whole(file: BinaryIO, image: ImageFile) -> bool:
    """Whether a file has its end, by the lengths it states; if these say nothing it is decoded."""
    size = file.seek(0, os.SEEK_END)
    if image.format in ('JPEG', 'MPO'):
        file.seek(-min(10, size), os.SEEK_END)
        if b'\xff\xd9' in file.read():
            return True
    elif image.format == 'WEBP':
        file.seek(4)
        return size >= int.from_bytes(file.read(4), 'little') + 8
    elif image.format == 'BMP' and image.tile[0][0] == 'raw':
        settings: Any = image.tile[0][3]
        return size >= image.tile[0][2] + settings[1] * image.height
    elif image.format == 'GIF':
        return gif_ends(file)
    file.seek(0)
    try:
        with Image.open(file) as anew:
            anew.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return False
    return True


def gif_ends(file: BinaryIO) -> bool:
    """Whether the blocks of a GIF lead to its end, without which OpenCV reads nothing."""
    file.seek(10)
    flags = file.read(3)[0]
    file.seek(3 * 2 ** (flags % 8 + 1) if flags & 128 else 0, os.SEEK_CUR)
    while (kind := file.read(1)) in (b'!', b','):
        if kind == b'!':
            file.read(1)
        else:
            flags = file.read(9)[8]
            file.seek(3 * 2 ** (flags % 8 + 1) + 1 if flags & 128 else 1, os.SEEK_CUR)
        while length := file.read(1)[0]:
            file.seek(length, os.SEEK_CUR)
    return kind == b';'


def read_tiff(file: BinaryIO) -> Header:
    """``read_header`` of TIFF and BigTIFF, of any tags; EOFError if it is cut off."""
    with warnings.catch_warnings():
        warnings.simplefilter('error', UserWarning)  # of tags that lie beyond the end
        pages = [*tiff_pages(file)]
        size = file.seek(0, os.SEEK_END)
        for page in pages:
            starts = numbers(page, 273) + numbers(page, 324)  # of strips, of tiles
            lengths = numbers(page, 279) + numbers(page, 325) or (0,) * len(starts)
            if any(start + length > size for start, length in zip(starts, lengths, strict=True)):
                raise EOFError
        first = pages[0]
        (width,), (height,), (bands,) = (numbers(first, tag, 1) for tag in (256, 257, 277))
        if not height * width * bands:
            raise ValueError('it has no pixels')
        bits, kinds = {*numbers(first, 258, 1)}, {*numbers(first, 339, 1)}
        dtype = f'{SAMPLES.get(min(kinds), "unknown")}{min(bits)}'
        dtype = 'bool' if dtype == 'uint1' else dtype
        (photometric,), (number,) = numbers(first, 262, -1), numbers(first, 259, 1)
        planar = bands > 1 and numbers(first, 284) == (2,)
        compression = COMPRESSION_INFO.get(number, f'method {number}').removeprefix('tiff_')
        tile = numbers(first, 322) + numbers(first, 323)
        pixel = min(bits) * (1 if planar else bands)
        if tile and number == 1 and tile[0] * tile[1] * pixel % 2**13:
            compression = 'odd tiles'
        if 0 in numbers(first, 279) + numbers(first, 325):
            compression = 'sparse'
        extra, most = numbers(first, 338), numbers(first, 281)
        return Header(
            *shown_size(height, width, numbers(first, ORIENTATION, 1)[0]),
            format='TIFF',
            bands=bands,
            dtype=dtype if len(bits) == len(kinds) == 1 else 'mixed',
            photometric=PHOTOMETRIC.get(photometric, f'tag {photometric}'),
            alpha=ALPHAS.get(extra[-1], 'other') if extra else '',
            planar=planar,
            compression=compression,
            pages=sum(not numbers(page, 254, 0)[0] & 5 for page in pages) or 1,
            no_data=str(first.get(42113, '')).strip('\0 '),
            max_value=max(most) if most else None,
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


def numbers(page: ImageFileDirectory_v2, tag: int, *default: int) -> tuple[int, ...]:
    """The integers of a tag."""
    found = page.get(tag, default)
    return tuple(map(int, found if isinstance(found, tuple) else (found,)))
