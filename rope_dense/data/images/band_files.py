"""Files of images with any number of bands: TIFF and other formats of GDAL, and .npy.

Letters: H x W pixels, n bands in the order of the file.
"""

from __future__ import annotations

import re
import textwrap
import warnings
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

if find_spec('rasterio'):
    import rasterio
    from rasterio import Affine
    from rasterio.errors import NotGeoreferencedWarning, RasterioIOError
    from rasterio.windows import Window

ARRAY = '.npy'
TYPES = ('uint8', 'uint16', 'int16', 'float32', 'float64')
NOT_INSTALLED = (
    'images are read by rasterio, which is not installed; it is the extra "large": '
    "pip install -e '.[large]' in the folder that holds setup.py"
)


@dataclass(frozen=True)
class BandHeader:
    """Size in pixels, number of bands, their type (of ``TYPES``) and names ('' for none)."""

    height: int
    width: int
    bands: int
    dtype: str
    names: tuple[str, ...] = ()

    def find(self, band: int | str) -> int:
        """The number of a band, from 1, by its number or its name in any case; 0 if it is none."""
        if isinstance(band, int):
            return band if 1 <= band <= self.bands else 0
        names = [name.strip().lower() for name in self.names]
        wanted = band.lower()
        return names.index(wanted) + 1 if names.count(wanted) == 1 else 0


class BandFile:
    """An open file of .npy ([H, W, n] or [H, W]) or GDAL, whose rows are read on request.

    The pages of a TIFF whose pages have one band each are bands.

    Attributes:
        parts: of GDAL, one or the pages; [] of .npy.
        crs: rasterio's coordinate system, or None.

    Raises:
        ValueError: no such file, no image, pixels of another type, or pages that differ in size.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.crs = None
        self.parts: list[rasterio.DatasetReader] = []
        names = []
        dtypes = set()
        if path.suffix.lower() == ARRAY:
            self.array = open_array(path)
            height, width, bands = self.array.shape
            dtypes.add(str(self.array.dtype))
        else:
            self.parts = open_pages(path)
            first = self.parts[0]
            self.crs = first.crs
            height, width = first.shape
            for part in self.parts:
                dtypes.update(part.dtypes)
                names += [name or '' for name in part.descriptions]
            bands = len(names)
        if len(dtypes) != 1 or not dtypes.issubset(TYPES):
            found = ', '.join(sorted(dtypes)) or 'no type'
            raise ValueError(
                f'{path}: pixels of {found}; give one of {", ".join(TYPES)}'
            )
        self.header = BandHeader(
            height,
            width,
            bands,
            dtypes.pop(),
            tuple(
                names,
            ),
        )

    @property
    def transform(self) -> Affine:
        """From pixels to a map; the identity without a map."""
        return self.parts[0].transform if self.parts else Affine.identity()

    def read(
        self,
        bands: Sequence[int] | None = None,
        rows: tuple[int, int] | None = None,
        columns: tuple[int, int] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Pixels [H, W, n] in the type of the file, and where values are missing: bool [H, W, n].

        A value is missing if the file says so (no-data value of GeoTIFF), or if it is NaN.

        Args:
            bands: numbers from 1; None for all.
            rows, columns: the first, and the one after the last; None for all.

        Raises:
            ValueError: the file is damaged, or has infinite pixels.
        """
        top, bottom = rows or (0, self.header.height)
        left, right = columns or (0, self.header.width)
        if self.parts:
            chosen = bands or range(1, self.header.bands + 1)
            window = Window(
                left,
                top,
                right - left,
                bottom - top,
            )
            pixels, missing = self.decode(chosen, window)
        else:
            part = np.asarray(self.array[top:bottom, left:right])
            places = None if bands is None else np.array(bands) - 1
            pixels = part.copy() if places is None else part.take(places, axis=2)
            missing = np.zeros(pixels.shape, bool)
        if pixels.dtype.kind == 'f':
            if np.isinf(pixels).any():
                raise ValueError(
                    f'{self.path}: has infinite pixels; write NaN for missing data'
                )
            missing |= np.isnan(pixels)
        return pixels, missing

    def decode(
        self,
        bands: Sequence[int],
        window: Window,
    ) -> tuple[np.ndarray, np.ndarray]:
        """``read`` of a file of GDAL, without NaN."""
        places = [(self.parts[0], bands)]
        if len(self.parts) > 1:
            places = [(self.parts[band - 1], [1]) for band in bands]
        found = []  # [n, H, W] each
        no_data = []
        try:
            for part, numbers in places:
                found.append(part.read(list(numbers), window=window))
                no_data += [part.nodatavals[number - 1] for number in numbers]
        except RasterioIOError as error:
            raise ValueError(
                f'{self.path}: cannot be read as an image ({error})'
            ) from error
        pixels = np.ascontiguousarray(np.moveaxis(np.concatenate(found), 0, 2))
        missing = np.zeros(pixels.shape, bool)
        for channel, value in enumerate(no_data):
            if value is not None:
                missing[..., channel] = pixels[..., channel] == value
        return pixels, missing

    def close(self) -> None:
        """Close the file."""
        for part in self.parts:
            part.close()


def open_array(path: Path) -> np.ndarray:
    """The array [H, W, n] of a .npy file, of which only requested rows are in memory."""
    try:
        pixels = np.load(path, mmap_mode='r', allow_pickle=False)
    except Exception as error:  # a damaged file can fail in any way
        why = textwrap.shorten(str(error), 120)
        raise ValueError(f'{path}: cannot be read as an array ({why})') from error
    is_array = isinstance(pixels, np.ndarray)
    if not is_array or pixels.ndim not in (2, 3) or not pixels.size:
        shape = f'shape {[*pixels.shape]}' if is_array else 'several arrays'
        raise ValueError(f'{path}: has {shape}; give one array [height, width, bands]')
    return pixels[..., None] if pixels.ndim == 2 else pixels


def open_pages(path: Path) -> list[rasterio.DatasetReader]:
    """An open file of GDAL, or its pages if they have one band each; ValueError as ``BandFile``."""
    first = open_raster(path)
    pages = first.subdatasets
    if first.count != 1 or len(pages) < 2:
        return [first]
    parts = [open_raster(page) for page in pages]
    sizes = [f'{part.width} x {part.height} x {part.count}' for part in parts]
    if len(set(sizes)) > 1:
        raise ValueError(
            f'{path}: its pages differ in size or bands: {", ".join(sizes)}'
        )
    return parts


def read_band_header(path: Path) -> BandHeader:
    """The header of a file, without its pixels; ValueError as ``BandFile``."""
    with closing(BandFile(path)) as file:
        return file.header


def open_raster(path: str | Path) -> rasterio.DatasetReader:
    """An open file of GDAL; ValueError if it is no image, or rasterio is not installed."""
    check_rasterio(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore', NotGeoreferencedWarning)
            # Without it GDAL lists the whole folder for each file that it opens: 1,000 files of a
            # folder take 0.6 s with it, and 1.0 s without.
            with rasterio.Env(GDAL_DISABLE_READDIR_ON_OPEN='TRUE'):
                return rasterio.open(path)
    except RasterioIOError as error:
        raise UnreadError(f'{path}: cannot be read as an image ({error})') from error
    except UnicodeEncodeError as error:
        raise ValueError(
            f'{path}: GDAL reads no name that is no UTF-8: rename it'
        ) from error


def check_rasterio(path: str | Path) -> None:
    """Raise ValueError, with a file, unless rasterio is installed."""
    if not find_spec('rasterio'):
        raise ValueError(f'{path}: {NOT_INSTALLED}')


class UnreadError(ValueError):
    """A file of a format that GDAL does not read, or no image."""


def write_bands(path: Path, pixels: np.ndarray) -> None:
    """Write pixels [H, W, n] as a TIFF of n bands; ValueError if rasterio is not installed."""
    check_rasterio(path)
    height, width, count = pixels.shape
    profile = dict(
        driver='GTiff',
        height=height,
        width=width,
        count=count,
        dtype=pixels.dtype,
    )
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', NotGeoreferencedWarning)
        with rasterio.open(path, 'w', **profile) as file:
            file.write(np.moveaxis(pixels, 2, 0))


def is_first(path: Path, names: Sequence[str], root: Path | None = None) -> bool:
    """Return whether a file has the first channel, where each channel is in a file of its own.

    Args:
        names: of the channels; the last of them in the path says which one it is. Without names
            every file is an image.
        root: folder of the data set, above which no folder names a channel; None for any path.
    """
    if not names:
        return True
    inside = path
    if root is not None and path.is_relative_to(root):
        inside = path.relative_to(root)
    return last_name(str(inside), names)[1] == names[0]


def channel_files(path: Path, names: Sequence[str]) -> list[Path]:
    """The file of each channel, by the path of the first, in whose last place the names change.

    ValueError if the path does not have the name of the first channel.
    """
    text = str(path)
    place, found = last_name(text, names[:1])
    if not found:
        raise ValueError(
            f'{path}: has no {names[0]!r}, '
            'the name of the first channel, between / _ - . or spaces'
        )
    start = text[:place]
    end = text[place + len(found) :]
    return [Path(f'{start}{name}{end}') for name in names]


def last_name(path: str, names: Sequence[str]) -> tuple[int, str]:
    """The last place in a path where one of the names stands between separators, and the name."""
    longest_first = sorted(names, key=len, reverse=True)
    backwards = '|'.join(re.escape(name[::-1]) for name in longest_first)
    found = re.search(rf'(?<![^/_\-. ])({backwards})(?![^/_\-. ])', path[::-1])
    if not found:
        return 0, ''
    return len(path) - found.end(), found[1][::-1]
