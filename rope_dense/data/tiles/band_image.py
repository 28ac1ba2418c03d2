"""Large images of any number of channels, read a few rows at a time."""

from pathlib import Path

import numpy as np

from ..images.band_files import BandFile, check_rasterio
from ..images.bands import LoadBands, no_data, shrink
from ..images.copies import copy_path, copy_raster, has_windows, write_rows
from ..images.headers import read_header
from .image_file import LargeImage


class BandImage(LargeImage):
    """The rows of an image as ``LoadBands`` loads it: float32 [rows, width, n], NaN is missing.

    As ``LargeImage``; only the requested rows of each band are read. An image of a file for each
    channel has its georeference from the first.

    Args:
        path: of the file, or of the file of the first channel.
        bands: what loads such images.
        shrink: see ``LargeImage``.
        copies: see ``window_file``.

    Raises:
        ValueError: a file cannot be read, or has other bands, types or sizes than ``bands`` needs.
    """

    has_no_data = True

    def __init__(
        self,
        path: str | Path,
        bands: LoadBands,
        shrink: int = 1,
        copies: str | None = None,
    ) -> None:
        check_rasterio(path)
        self.path = Path(path)
        self.shrink = shrink
        self.bands = bands
        self.files = []
        for name in bands.files(self.path):
            self.files.append(BandFile(window_file(name, copies, bands, writes=True)))
        self.file = self.files[0]
        header = self.file.header
        self._set_size((header.height, header.width), bands.channels, np.float32)
        bands.check_headers(self.path, {file.path: file.header for file in self.files})

    def decode_chunk(
        self,
        left: int,
        top: int,
        right: int,
        bottom: int,
    ) -> np.ndarray:
        """A part of the files."""
        rows = (top, bottom)
        columns = (left, right)
        parts = [self.bands.part(file, rows, columns) for file in self.files]
        return np.concatenate(parts, axis=2)

    def shrink_chunk(self, chunk: np.ndarray, width: int, height: int) -> np.ndarray:
        """A chunk in the pixels of the shrunken image; NaN where all pixels have no data."""
        small = shrink(self.bands.filled(chunk), width, height)
        missing = no_data(chunk)
        if missing is not None:
            known = shrink(1 - missing[..., None].astype(np.float32), width, height)
            small[known[..., 0] == 0] = np.nan
        return small


def open_image(
    path: str | Path,
    bands: LoadBands | None,
    shrink: int = 1,
    copies: str | None = None,
) -> LargeImage:
    """An image as a model takes it, with channels of ``bands``; ``copies``: see ``window_file``."""
    if bands is not None:
        return BandImage(path, bands, shrink, copies)
    return LargeImage(window_file(Path(path), copies, None, writes=True), shrink)


def window_file(
    path: Path,
    folder: str | None,
    bands: LoadBands | None,
    writes: bool = False,
) -> Path:
    """The file that windows of a file are read of: itself, or its copy.

    Args:
        folder: of copies; None to take the file itself.
        bands: None for pictures, which are copied as they are shown.
        writes: the copy is written if it is not there.
    """
    if folder is None:
        return path
    is_turned = bands is None and read_header(path).orientation > 1
    if has_windows(path) and not is_turned:
        return path
    copy = copy_path(path, Path(folder))
    if copy.exists() or not writes:
        return copy
    if bands is not None:
        copy_raster(path, copy)
        return copy
    image = LargeImage(path)
    write_rows(
        copy,
        (image.height, image.width, 3),
        np.dtype('uint8'),
        lambda top, end: image.read(top, end)[..., ::-1],
    )
    return copy
