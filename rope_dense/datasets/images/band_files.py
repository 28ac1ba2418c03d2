"""Files of images with any number of bands: TIFF and other formats of GDAL, and .npy.

Letters: H x W pixels, n bands in the order of the file.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

if find_spec('rasterio'):
    import rasterio
    from rasterio.errors import NotGeoreferencedWarning, RasterioIOError
    from rasterio.windows import Window

ARRAY = '.npy'
TYPES = ('uint8', 'uint16', 'int16', 'float32', 'float64')
NOT_INSTALLED = 'images of bands are read by rasterio: install the extra "large"'


@dataclass(frozen=True)
class BandHeader:
    """The header of a file.

    Attributes:
        height, width: in pixels.
        bands: number of them.
        dtype: of the pixels, one of ``TYPES``.
    """

    height: int
    width: int
    bands: int
    dtype: str


def read_bands(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Pixels [H, W, n] in the type of the file, and where values are missing: bool [H, W, n].

    A value is missing if the file says so (no-data value of GeoTIFF), or if it is NaN. None of the
    latter if no value is missing. The pages of a TIFF whose pages have one band each are bands.

    Raises:
        ValueError: no such file, no image, or pixels of another type or infinite.
    """
    pixels, missing = read_array(path) if path.suffix.lower() == ARRAY else read_raster(path)
    if pixels.dtype.kind == 'f':
        if np.isinf(pixels).any():
            raise ValueError(f'{path}: has infinite pixels; write NaN where there are no data')
        missing = missing | np.isnan(pixels)
    return pixels, missing if missing.any() else None


def band_header(path: Path) -> BandHeader:
    """The header of a file, without its pixels.

    Raises:
        ValueError: no such file, no image, or pixels of another type.
    """
    if path.suffix.lower() == ARRAY:
        pixels = open_array(path)
        height, width, bands = pixels.shape
        return BandHeader(height, width, bands, str(pixels.dtype))
    with opened(path) as file:
        bands, dtype = len(pages(file)) or file.count, type_of(path, file.dtypes)
        return BandHeader(file.height, file.width, bands, dtype)


def read_array(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """``read_bands`` of .npy, without NaN."""
    pixels = np.ascontiguousarray(open_array(path))
    return pixels, np.zeros(pixels.shape, bool)


def open_array(path: Path) -> np.ndarray:
    """The array [H, W, n] of a file, on the disk."""
    try:
        pixels = np.load(path, mmap_mode='r', allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ValueError(f'{path}: cannot be read as an array ({error})') from error
    if not isinstance(pixels, np.ndarray) or pixels.ndim not in (2, 3) or not pixels.size:
        shape = f'shape {[*pixels.shape]}' if isinstance(pixels, np.ndarray) else 'several arrays'
        raise ValueError(f'{path}: has {shape}; give one array [height, width, bands]')
    type_of(path, [str(pixels.dtype)])
    return pixels[..., None] if pixels.ndim == 2 else pixels


def read_raster(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """``read_bands`` of a file that GDAL reads, without NaN."""
    with opened(path) as file:
        parts = [read_page(page) for page in pages(file)] or [whole(file)]
        type_of(path, file.dtypes)
    pixels, missing = (np.concatenate(x) for x in zip(*parts, strict=True))  # [n, H, W]
    return (
        np.ascontiguousarray(np.moveaxis(pixels, 0, 2)),
        np.ascontiguousarray(np.moveaxis(missing, 0, 2)),
    )


def whole(
    file: rasterio.DatasetReader,
    bands: Sequence[int] | None = None,
    window: Window | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Bands [n, H, W] of an open file, and where they equal their no-data value.

    Args:
        bands: numbers from 1; None for all.
        window: part of the image; None for all.
    """
    chosen = [*(bands or file.indexes)]
    pixels = file.read(chosen, window=window)
    missing = np.zeros(pixels.shape, bool)
    for place, band in enumerate(chosen):
        if (value := file.nodatavals[band - 1]) is not None:
            missing[place] = pixels[place] == value
    return pixels, missing


def read_page(name: str) -> tuple[np.ndarray, np.ndarray]:
    """``whole`` of a page of a file."""
    with open_raster(name) as page:
        return whole(page)


def pages(file: rasterio.DatasetReader) -> list[str]:
    """The names of the pages of a file of several pages of one band each; else none."""
    return file.subdatasets if file.count == 1 and len(file.subdatasets) > 1 else []


@contextmanager
def opened(path: Path) -> Iterator[rasterio.DatasetReader]:
    """``open_raster`` within a context, whose reading raises ValueError for a damaged file."""
    with open_raster(path) as file:
        try:
            yield file
        except RasterioIOError as error:
            raise unreadable(path, error) from error


def open_raster(path: str | Path) -> rasterio.DatasetReader:
    """An open file.

    Raises:
        ValueError: it is no image, or rasterio is not installed.
    """
    if not find_spec('rasterio'):
        raise ValueError(f'{path}: {NOT_INSTALLED}')
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore', NotGeoreferencedWarning)
            return rasterio.open(path)
    except RasterioIOError as error:
        raise unreadable(path, error) from error


def unreadable(path: str | Path, error: Exception) -> ValueError:
    """The error of a file that is no image, or damaged."""
    return ValueError(f'{path}: cannot be read as an image ({error})')


def type_of(path: Path, dtypes: tuple[str, ...] | list[str]) -> str:
    """The one type of all bands; ValueError if there are several, or it is none of ``TYPES``."""
    found = sorted(set(dtypes))
    if len(found) > 1 or found[0] not in TYPES:
        raise ValueError(f'{path}: pixels of {", ".join(found)}; give one of {", ".join(TYPES)}')
    return found[0]


def write_bands(path: Path, pixels: np.ndarray) -> None:
    """Write pixels [H, W, n] as a TIFF of n bands.

    Raises:
        ValueError: rasterio is not installed.
    """
    if not find_spec('rasterio'):
        raise ValueError(f'{path}: {NOT_INSTALLED}')
    height, width, count = pixels.shape
    profile = dict(driver='GTiff', height=height, width=width, count=count, dtype=pixels.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', NotGeoreferencedWarning)
        with rasterio.open(path, 'w', **profile) as file:
            file.write(np.moveaxis(pixels, 2, 0))
