"""Polygons on a map as outlines in the pixels of georeferenced images. Rings are [n, 2], not closed."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from .geometry import FAR
from .inventory import State
from .objects import Box

if find_spec('rasterio'):
    import rasterio
    from rasterio import Affine
    from rasterio.crs import CRS
    from rasterio.errors import NotGeoreferencedWarning, RasterioIOError
    from rasterio.warp import transform

Polygon = Sequence[np.ndarray]  # its outer ring, and its holes


@dataclass(frozen=True, eq=False)
class GeoImage:
    """An image on a map.

    Attributes:
        crs: its coordinate system; None if only the transform is known, as from a world file.
        to_map: from pixels (x, y) to the map; it may rotate.
    """

    file: Path
    height: int
    width: int
    crs: CRS | None
    to_map: Affine

    @property
    def size(self) -> tuple[int, int]:
        """(height, width)."""
        return self.height, self.width

    @cached_property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The least and the largest (x, y) on the map."""
        sides = self.width, self.height
        corners = [self.to_map * (x * sides[0], y * sides[1]) for x in (0, 1) for y in (0, 1)]
        return np.min(corners, 0), np.max(corners, 0)

    def pixels(self, points: np.ndarray) -> np.ndarray:
        """Points [n, 2] of the map in pixels."""
        matrix = np.reshape((~self.to_map)[:6], (2, 3))
        return points @ matrix[:, :2].T + matrix[:, 2]


@lru_cache(None)
def geo_image(file: Path, state: State) -> GeoImage | None:
    """An image on a map; None for one without a transform to a map.

    Args:
        state: of the file, so that a changed one is read anew.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore', NotGeoreferencedWarning)
            with rasterio.open(file) as image:
                is_placed = not image.transform.is_identity
                found = GeoImage(file, *image.shape, image.crs, image.transform)
    except RasterioIOError:
        return None
    return found if is_placed else None


def project(points: np.ndarray, crs: CRS | None, target: CRS | None) -> np.ndarray:
    """Points [n, 2] in another coordinate system; as they are where one of the two is unknown.

    NaN where they have no place in it.
    """
    if crs is None or target is None or crs == target:
        return points
    try:
        return np.stack(transform(crs, target, *points.T), 1)
    except Exception:  # GDAL's errors, such as of a latitude of 95 degrees, have no public class
        return np.full_like(points, np.nan)


def outline_in(
    polygons: Sequence[Polygon], height: int, width: int
) -> tuple[Box, list[list[float]], bool] | None:
    """The part of an object within an image; None if it is less than a pixel.

    Args:
        polygons: in pixels.

    Returns:
        The box of the part, the outline, which may leave the image, and whether it does.
    """
    corners = np.concatenate([ring for ring, *_ in polygons])
    is_cut = bool((corners < -0.01).any() or (corners > np.add((width, height), 0.01)).any())
    if is_cut:
        clipped = [[clipped_ring(ring, height, width) for ring in rings] for rings in polygons]
        area = sum(area_of(outer) - sum(map(area_of, holes)) for outer, *holes in clipped)
        if area < 1:
            return None
        corners = np.concatenate([ring for ring, *_ in clipped])
        if max(np.abs(ring).max() for ring, *_ in polygons) > FAR * max(height, width):
            polygons = [[ring for ring in rings if len(ring)] for rings in clipped if len(rings[0])]
    (left, top), (right, bottom) = corners.min(0).tolist(), corners.max(0).tolist()
    outline = [joined(outer, holes).reshape(-1).tolist() for outer, *holes in polygons]
    return (left, top, right - left, bottom - top), outline, is_cut


def clipped_ring(ring: np.ndarray, height: int, width: int) -> np.ndarray:
    """The part of a ring within an image (Sutherland and Hodgman); [0, 2] for none."""
    for axis, limit, sign in ((0, 0, 1), (0, width, -1), (1, 0, 1), (1, height, -1)):
        following = np.roll(ring, -1, 0)
        depth, depth_next = (sign * (some[:, axis] - limit) for some in (ring, following))
        crosses = (depth >= 0) != (depth_next >= 0)
        step = depth / np.where(crosses, depth - depth_next, 1)
        cut = ring + step[:, None] * (following - ring)
        ring = np.stack([ring, cut], 1)[np.stack([depth >= 0, crosses], 1)]
    return ring


def signed_area(ring: np.ndarray) -> float:
    """The area of a ring, negative for the other direction."""
    x, y = (ring - ring[:1]).T
    return float(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2


def area_of(ring: np.ndarray) -> float:
    """The area of a ring."""
    return abs(signed_area(ring))


def joined(outer: np.ndarray, holes: Sequence[np.ndarray]) -> np.ndarray:
    """A polygon with holes as one ring: a line leads into each hole, and back."""
    for hole in holes:
        if signed_area(hole) * signed_area(outer) > 0:
            hole = hole[::-1]
        place = int(((outer - hole[0]) ** 2).sum(1).argmin())
        outer = np.concatenate([outer[: place + 1], hole, hole[:1], outer[place:]])
    return outer
