"""Large images of any number of channels, read a few rows at a time."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ..datasets.images.band_files import open_raster, whole
from ..datasets.images.bands import LoadBands, shrink
from .image_file import LargeImage

if find_spec('rasterio'):
    import rasterio
    from rasterio.windows import Window


class BandImage(LargeImage):
    """The rows of an image as ``LoadBands`` loads it: float32 [rows, width, n].

    As ``LargeImage``; only the requested rows of each band are decoded. An image of a file for each
    channel has its georeference from the first.

    Args:
        path: of the file, or of the file of the first channel.
        bands: what loads such images.
        shrink: see ``LargeImage``.

    Raises:
        ValueError: a file cannot be read, or has other bands, types or sizes than ``bands`` needs.
    """

    def __init__(self, path: str | Path, bands: LoadBands, shrink: int = 1) -> None:
        self.shrink, self.bands = shrink, bands
        self.files = [open_raster(file) for file in bands.files(Path(path))]
        self.file = self.files[0]
        self.turned = None
        sizes = {file.shape for file in self.files}
        if len(sizes) > 1:
            raise ValueError(f'{path}: the files of its channels differ in size, {sorted(sizes)}')
        self.full_size = self.file.shape
        self.height, self.width = (-(-side // shrink) for side in self.full_size)
        self.channels = bands.channels
        self.first, self.rows = 0, np.empty((0, self.width, self.channels), np.float32)
        for file in self.files:
            bands.check_type(Path(file.name), file.dtypes[0])
        self.decode_chunk(0, 1)  # fails here for other bands

    def decode_chunk(self, top: int, bottom: int) -> np.ndarray:
        """Rows of the image; beyond its edges the last row and column are repeated."""
        height, width = self.full_size
        stop = min(bottom, height)
        parts = [self.window(file, top, stop) for file in self.files]
        pixels, _ = self.bands.joined(Path(self.file.name), parts)
        missing = (0, bottom - stop), (0, self.width * self.shrink - width), (0, 0)
        return np.pad(pixels, missing, mode='edge')

    def window(
        self, file: rasterio.DatasetReader, top: int, stop: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The chosen bands of some rows of a file, [rows, width, n], and where they are missing."""
        window = Window(0, top, file.width, stop - top)
        chosen = self.bands.bands or range(1, file.count + 1)
        if max(chosen) > file.count:
            raise ValueError(f'{file.name}: {file.count} bands, there is no band {max(chosen)}')
        pixels, missing = (np.moveaxis(x, 0, 2) for x in whole(file, chosen, window))
        return pixels, missing | np.isnan(pixels)

    def shrunken(self, chunk: np.ndarray, width: int, height: int) -> np.ndarray:
        """A chunk in the pixels of the shrunken image."""
        return shrink(chunk, width, height)


def open_image(path: str | Path, bands: LoadBands | None, shrink: int = 1) -> LargeImage:
    """An image as a model takes it: of any number of channels if ``bands`` loads them."""
    return LargeImage(path, shrink) if bands is None else BandImage(path, bands, shrink)
