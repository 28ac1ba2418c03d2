"""Copies of images and maps of which windows can be read: tiled TIFF files, written once.

PNG and JPEG files are decoded from their beginning, so that a window at the bottom of an image
costs as much as the image. A copy is named by the file and its state.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ...utils.disk import atomic_write
from ..classes import Colour
from ..labels.inventory import state_of
from ..labels.kept import repr_digest
from .band_files import ARRAY, UnreadError, open_raster

if find_spec('rasterio'):
    import rasterio
    import rasterio.shutil
    from rasterio.errors import NotGeoreferencedWarning
    from rasterio.windows import Window

SEQUENTIAL = ('PNG', 'JPEG', 'WEBP', 'GIF', 'AVIF', 'HEIF')  # GDAL's names
BLOCK = 256  # side of the blocks of a copy
MOST = 2**24  # pixels of a block of a file that is read as it is
SOURCE = '.source'  # of a link
Palette = Mapping[int, Colour]
LAYOUT = dict(
    tiled=True,
    blockxsize=BLOCK,
    blockysize=BLOCK,
    compress='deflate',
    zlevel=1,
    driver='GTiff',
    bigtiff='if_safer',
)


def has_windows(path: Path) -> bool:
    """Return whether a window of a file is read without decoding most of the file."""
    if path.suffix.lower() == ARRAY:
        return True
    try:
        opened = open_raster(path)
    except UnreadError:
        return False
    with opened as file:
        blocks = file.block_shapes or [(1, 1)]  # none of a file of subdatasets
        if file.driver in SEQUENTIAL:
            return False
        return max(height * width for height, width in blocks) <= MOST


def copy_path(path: Path, folder: Path, about: object = '') -> Path:
    """The place of a file's copy, of whose content ``about`` says more, with a link to the file."""
    source = path.resolve()
    copy = folder / f'{repr_digest(str(source), about)[:24]}{state_digest(path)}.tif'
    if not copy.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):  # it is there
            copy.with_suffix(SOURCE).symlink_to(source)
    return copy


def state_digest(path: Path) -> str:
    """A digest of the state of a file, see ``Inventory``."""
    return repr_digest(state_of(path.stat()))[:16]


def remove_outdated(folder: Path) -> int:
    """Remove copies of files that have changed or are gone, which nobody reads; their number."""
    outdated = 0
    for link in folder.glob(f'*{SOURCE}'):
        if link.exists() and link.stem.endswith(state_digest(link)):
            continue
        link.with_suffix('.tif').unlink(missing_ok=True)
        link.unlink()
        outdated += 1
    return outdated


def copy_raster(path: Path, out: Path) -> None:
    """Copy a file with all of its bands and its no-data value, block by block.

    ValueError if GDAL does not read it.
    """
    with (
        open_raster(path) as file,
        atomic_write(out) as fresh,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter('ignore', NotGeoreferencedWarning)
        rasterio.shutil.copy(file, fresh, **LAYOUT)


def write_rows(
    out: Path,
    shape: Sequence[int],
    dtype: np.dtype,
    read: Callable[[int, int], np.ndarray],
    palette: Palette | None = None,
    **profile: Any,
) -> None:
    """Write pixels of ``shape`` (height, width, bands), of which ``read(top, bottom)`` gives rows.

    Three bands are red, green and blue; of one band ``palette`` has them for its values.
    """
    height, width, bands = shape
    with atomic_write(out) as fresh, warnings.catch_warnings():
        warnings.simplefilter('ignore', NotGeoreferencedWarning)
        with rasterio.open(
            fresh,
            'w',
            height=height,
            width=width,
            count=bands,
            dtype=dtype,
            **LAYOUT | profile,
        ) as file:
            if palette:
                file.write_colormap(1, dict(palette))
            for top in range(0, height, BLOCK):
                bottom = min(top + BLOCK, height)
                rows = read(top, bottom).reshape(bottom - top, width, bands)
                window = Window(0, top, width, bottom - top)
                file.write(np.moveaxis(rows, 2, 0), window=window)


def read_map(
    path: Path,
    results: Mapping[str, Any],
    about: object,
    load: Callable[[], np.ndarray],
) -> np.ndarray:
    """A map that ``load`` gives as a whole [H, W]; of a tile its window [h, w], of a copy.

    ``results`` has the `window` (left, top, right, bottom) and the folder of `copies` of a tile;
    ``about`` is what ``load`` depends on.
    """
    folder = results.get('copies')
    if folder is None:
        return load()
    left, top, right, bottom = results['window']
    copy = copy_path(path, Path(folder), about)
    if not copy.exists():
        whole = load()
        shape = (*whole.shape, 1)
        write_rows(copy, shape, whole.dtype, lambda top, end: whole[top:end])
    with open_raster(copy) as file:
        return file.read(1, window=Window(left, top, right - left, bottom - top))
