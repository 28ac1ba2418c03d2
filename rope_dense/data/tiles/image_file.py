"""Image files of any size, read and written a few rows at a time, and their place on a map.

``LargeImage`` reads an image, ``write_raster`` writes labels or depth, and ``geojson_text`` puts
objects on the map (GeoJSON, RFC 7946).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np

from ..images.band_files import UnreadError, open_raster
from ..images.copies import Palette, write_rows
from ..images.headers import check_pixel_count, read_header
from ..images.pictures import check_picture
from ..images.sources import read_image

if find_spec('rasterio'):
    import rasterio
    import rasterio.shutil
    from rasterio.enums import ColorInterp
    from rasterio.warp import transform
    from rasterio.windows import Window

CHUNK = 2**24  # bytes of pixels that are read or written at a time
# GDAL caches decoded blocks, by default up to a twentieth of the machine's memory. It needs a few
# chunks: png files have their channels pixel by pixel, but are read channel by channel.
os.environ.setdefault('GDAL_CACHEMAX', f'{4 * CHUNK // 2**20}')  # in MB
LABEL_FORMATS = {'.tif': 'GTiff', '.tiff': 'GTiff', '.png': 'PNG'}
WGS84 = 'EPSG:4326'  # longitude and latitude, the one system of GeoJSON


class LargeImage:
    """The rows of an image file, in pixels as OpenMMLab has them: uint8, blue, green, red.

    Formats are GDAL's, among them tiff, png and jpeg. Of a tiff, only the requested rows are
    decoded; png and jpeg are decoded from the top, so request their rows in that order. Rows that
    overlap the last request are decoded once. As by ``mmcv.imread``, grey images become
    three equal channels, 1, 2 and 4 bits are scaled to 0 .. 255, palettes become their colours, and
    alpha is dropped. A photograph with an EXIF orientation is turned, and therefore held in memory,
    and so is what GDAL cannot read, as AVIF and HEIC in rasterio's wheel.
    A jpeg whose colours have half the resolution differs, because GDAL has another decoder: see
    docs/large_images.md.

    Args:
        path: of the file.
        shrink: makes every pixel the mean of ``shrink`` x ``shrink`` of the file.

    Attributes:
        height, width: in (shrunken) pixels.
        channels: of a pixel.
        has_no_data: whether pixels can be missing, which label rasters say.

    Raises:
        ValueError: no image, or no picture of 8 bits (``check_picture``); it is on a map, but
            turned; or rasterio is not installed.
    """

    has_no_data = False
    file: Any  # of rasterio, or without a map
    rows: np.ndarray
    turned: np.ndarray | None = None
    palette: np.ndarray | None = None
    scale = 1  # of the values of 1, 2 or 4 bits
    is_inverted = False

    def __init__(self, path: str | Path, shrink: int = 1) -> None:
        self.shrink = shrink
        try:
            self.file = open_raster(path)
            self.check_file(Path(path))
        except UnreadError:
            identity = rasterio.Affine.identity()
            self.file = SimpleNamespace(
                count=3,
                crs=None,
                transform=identity,
            )
            self.turned = np.moveaxis(read_image(Path(path)), 2, 0)[::-1]
        shape = self.file.shape if self.turned is None else self.turned.shape[1:]
        self._set_size(shape, 3, np.uint8)

    def _set_size(self, size: Sequence[int], channels: int, dtype: type) -> None:
        """Note height and width of the file; no row is read yet."""
        height, width = size
        self.full_size = (height, width)
        self.height = -(-height // self.shrink)
        self.width = -(-width // self.shrink)
        self.channels = channels
        self.first = 0  # of the rows that were read last
        self.rows = np.empty((0, self.width, channels), dtype)

    def check_file(self, path: Path) -> None:
        """Find out how pixels are stored; ValueError for what is no picture of 8 bits."""
        header = read_header(path)
        check_picture(path, header, by_opencv=False)
        if self.file.dtypes[0] != 'uint8':
            raise ValueError(
                f'{path}: pixels of {header.dtype}; tiles are read of uint8'
            )
        self.palette = palette_of(self.file)
        # 1, 2 or 4 bits are scaled to 0 .. 255.
        bits = int(self.file.tags(1, ns='IMAGE_STRUCTURE').get('NBITS', 8))
        self.scale = 255 // (2**bits - 1)
        if self.palette is None:
            self.is_inverted = header.photometric == 'inverted grey'
        if header.orientation > 1:
            if not self.file.transform.is_identity:
                raise ValueError(
                    f'{path}: it has a transform to a map and an EXIF orientation; remove one'
                )
            check_pixel_count(path, header.height, header.width)
            self.turned = apply_orientation(self.file.read(), header.orientation)

    def read(self, top: int, bottom: int) -> np.ndarray:
        """Rows ``top`` to ``bottom``, [bottom - top, width, 3]."""
        kept = self.rows[top - self.first :]
        start = self.first + len(self.rows)
        if not self.first <= top <= start:
            kept = self.rows[:0]
            start = top
        self.rows = np.concatenate([kept, self.decode(start, bottom)])
        self.first = top
        return self.rows

    def decode(self, top: int, bottom: int) -> np.ndarray:
        """Rows from the file, chunk by chunk."""
        rows = np.empty((bottom - top, *self.rows.shape[1:]), self.rows.dtype)
        size = self.channels * rows.itemsize  # bytes of a pixel
        step = max(1, CHUNK // (size * self.full_size[1] * self.shrink))
        for start in range(top, bottom, step):
            stop = min(start + step, bottom)
            rows[start - top : stop - top] = self.window(0, start, self.width, stop)
        return rows

    def window(
        self,
        left: int,
        top: int,
        right: int,
        bottom: int,
    ) -> np.ndarray:
        """A part of the image, [bottom - top, right - left, channels].

        Beyond the edges of the file its last row and column are repeated.
        """
        times = self.shrink
        height, width = self.full_size
        end = min(right * times, width)
        stop = min(bottom * times, height)
        chunk = self.decode_chunk(left * times, top * times, end, stop)
        beyond = ((0, bottom * times - stop), (0, right * times - end), (0, 0))
        chunk = np.pad(chunk, beyond, mode='edge')
        if times == 1:
            return chunk
        return self.shrink_chunk(chunk, right - left, bottom - top)

    def shrink_chunk(self, chunk: np.ndarray, width: int, height: int) -> np.ndarray:
        """A chunk in the pixels of the shrunken image."""
        return cv2.resize(chunk, (width, height), interpolation=cv2.INTER_AREA)

    def decode_chunk(
        self,
        left: int,
        top: int,
        right: int,
        bottom: int,
    ) -> np.ndarray:
        """A part of the file."""
        bands = [3, 2, 1] if self.file.count > 2 else [1]
        if self.turned is None:
            window = Window(
                left,
                top,
                right - left,
                bottom - top,
            )
            pixels = self.file.read(bands, window=window)
        else:
            pixels = self.turned[np.array(bands) - 1, top:bottom, left:right]
        pixels = np.moveaxis(pixels, 0, 2)  # [rows, columns, 3 or 1]
        if self.palette is not None:
            pixels = self.palette[pixels[..., 0]]
        elif self.scale > 1:
            pixels = pixels * np.uint8(self.scale)
        elif self.is_inverted:
            pixels = 255 - pixels
        if pixels.shape[2] == 1:
            pixels = pixels.repeat(3, axis=2)
        return pixels


def apply_orientation(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Pixels [bands, height, width] as an EXIF orientation (1 to 8) shows them."""
    if orientation > 4:
        pixels = pixels.swapaxes(1, 2)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[:, ::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, :, ::-1]
    return pixels


def palette_of(file: rasterio.DatasetReader) -> np.ndarray | None:
    """Blue, green, red of each value, [256, 3], of an image that has a palette."""
    if file.colorinterp[0] != ColorInterp.palette:
        return None
    palette = np.zeros((256, 3), np.uint8)
    for value, (red, green, blue, *_) in file.colormap(1).items():
        palette[value] = blue, green, red
    return palette


def write_raster(
    rows_file: Path,
    out: Path,
    image: LargeImage,
    dtype: np.dtype,
    palette: Palette,
    numbers: np.ndarray | None = None,
) -> None:
    """Write a raster of labels or of depth from a file of its rows.

    A tiff is tiled and compressed. It has the georeference of the image, if there is one. The
    largest number of the type, of depth 0, is the no-data value of an image of any number of
    channels.

    Args:
        rows_file: labels or depth [height, width], as numpy's ``tobytes`` has them. A file of the
            same name, and .tif, is beside it meanwhile.
        out: NAME.tif, NAME.tiff or NAME.png.
        image: what they are of.
        palette: red, green, blue of labels; for labels of 8 bits only.
        numbers: that stand for the labels in the raster, see ``stored_numbers``.
    """
    width = image.width
    profile = dict[str, Any](zlevel=6)
    missing = np.iinfo(dtype).max if dtype.kind == 'u' else 0
    stored = dtype
    if numbers is not None:
        missing = int(numbers[missing])
        stored = numbers.dtype
        palette = {int(numbers[label]): colour for label, colour in palette.items()}
    if image.has_no_data:
        profile['nodata'] = missing
    if image.file.crs:
        profile.update(crs=image.file.crs, transform=image.file.transform)
    size = width * dtype.itemsize  # bytes of a row

    def read(top: int, end: int) -> np.ndarray:
        values = np.fromfile(
            rows_file,
            dtype,
            (end - top) * width,
            offset=top * size,
        )
        return values if numbers is None else numbers[values]

    driver = LABEL_FORMATS[out.suffix.lower()]
    tiff = out if driver == 'GTiff' else rows_file.with_name(f'{rows_file.name}.tif')
    write_rows(
        tiff,
        (image.height, width, 1),
        stored,
        read,
        palette if stored == np.uint8 else None,
        **profile,
    )
    if tiff != out:
        # No file beside it for what a png has no place.
        with rasterio.Env(GDAL_PAM_ENABLED='NO'):
            rasterio.shutil.copy(tiff, out, driver=driver)
        tiff.unlink()


def is_on_map(image: LargeImage) -> bool:
    """Return whether an image has a transform and a coordinate system."""
    return bool(image.file.crs) and not image.file.transform.is_identity


def geojson_text(content: dict, image: LargeImage) -> str:
    """The boxes, or corners if `segmentation` is a polygon, as polygons on the map."""
    names = {category['id']: category['name'] for category in content['categories']}
    features = []
    for item in content['annotations']:
        ring = on_map(four_corners(item), image)

        feature = dict(
            type='Feature',
            geometry=dict(type='Polygon', coordinates=[ring]),
            properties={
                'class': names[item['category_id']],
                'score': item['score'],
            },
        )
        features.append(feature)
    return json.dumps(dict(type='FeatureCollection', features=features)) + '\n'


def four_corners(annotation: dict) -> np.ndarray:
    """The corners [4, 2] of the box of an annotation, in pixels."""
    outline = annotation.get('segmentation')
    if outline and 'rbox' in annotation:
        return np.reshape(outline[0], (4, 2))
    left, top, width, height = annotation['bbox']
    right = left + width
    bottom = top + height
    return np.array([[left, top], [right, top], [right, bottom], [left, bottom]])


def on_map(corners: np.ndarray, image: LargeImage) -> list[list[float]]:
    """A closed ring [longitude, latitude], counter-clockwise, of corners [4, 2] in pixels."""
    to_map = np.reshape(image.file.transform[:6], (2, 3))
    x, y = to_map[:, :2] @ corners.T + to_map[:, 2:]
    longitudes, latitudes = transform(image.file.crs, WGS84, x.tolist(), y.tolist())
    ring = np.stack([longitudes, latitudes], 1)
    following = np.roll(ring, -1, 0)
    doubled_area = (ring[:, 0] * following[:, 1] - following[:, 0] * ring[:, 1]).sum()
    if doubled_area <= 0:
        ring = ring[::-1]
    return [*ring.tolist(), ring[0].tolist()]
