"""Large images of any number of channels, read a few rows at a time."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ..datasets.images.band_files import BandFile
from ..datasets.images.bands import LoadBands, no_data, shrink
from .image_file import NOT_INSTALLED, LargeImage


class BandImage(LargeImage):
    """The rows of an image as ``LoadBands`` loads it: float32 [rows, width, n], NaN is missing.

    As ``LargeImage``; only the requested rows of each band are read. An image of a file for each
    channel has its georeference from the first.

    Args:
        path: of the file, or of the file of the first channel.
        bands: what loads such images.
        shrink: see ``LargeImage``.

    Raises:
        ValueError: a file cannot be read, or has other bands, types or sizes than ``bands`` needs.
    """

    has_no_data = True

    def __init__(self, path: str | Path, bands: LoadBands, shrink: int = 1) -> None:
        if not find_spec('rasterio'):
            raise ValueError(f'{path}: {NOT_INSTALLED}')
        self.path, self.shrink, self.bands = Path(path), shrink, bands
        self.files = [*map(BandFile, bands.files(self.path))]
        self.file, self.turned = self.files[0], None
        header = self.file.header
        self.full_size = header.height, header.width
        self.height, self.width = (-(-side // shrink) for side in self.full_size)
        self.channels = bands.channels
        self.first, self.rows = 0, np.empty((0, self.width, self.channels), np.float32)
        bands.check_headers(self.path, {file.path: file.header for file in self.files})

    def decode_chunk(self, top: int, bottom: int) -> np.ndarray:
        """Rows of the image; beyond its edges the last row and column are repeated."""
        height, width = self.full_size
        stop = min(bottom, height)
        parts = [self.bands.rows(file, (top, stop)) for file in self.files]
        pixels = np.concatenate(parts, axis=2)
        beyond = (0, bottom - stop), (0, self.width * self.shrink - width), (0, 0)
        return np.pad(pixels, beyond, mode='edge')

    def shrunken(self, chunk: np.ndarray, width: int, height: int) -> np.ndarray:
        """A chunk in the pixels of the shrunken image; NaN where all pixels have no data."""
        small = shrink(self.bands.filled(chunk), width, height)
        if (missing := no_data(chunk)) is not None:
            known = shrink(1 - missing[..., None].astype(np.float32), width, height)
            small[known[..., 0] == 0] = np.nan
        return small


def open_image(path: str | Path, bands: LoadBands | None, shrink: int = 1) -> LargeImage:
    """An image as a model takes it: of any number of channels if ``bands`` loads them."""
    return LargeImage(path, shrink) if bands is None else BandImage(path, bands, shrink)
