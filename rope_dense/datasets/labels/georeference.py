"""Polygons on a map as outlines in the pixels of georeferenced images.

A ring is [n, 2], without its first corner at the end; a polygon has its outer ring and its holes.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from .geometry import FAR, bounding_box
from .inventory import State
from .objects import Box, Shape

if find_spec('rasterio'):
    import rasterio
    from rasterio.crs import CRS
    from rasterio.errors import NotGeoreferencedWarning, RasterioIOError
    from rasterio.warp import transform

Polygon = Sequence[np.ndarray]


@dataclass
class Feature:
    """An object on a map.

    Attributes:
        where: its place, such as 'a.geojson, feature 3'.
        problem: why it has no polygon; '' if it has one.
    """

    where: str
    label: str
    properties: Mapping[str, Any]
    polygons: Sequence[Polygon]
    problem: str


@dataclass(frozen=True, eq=False)
class GeoImage:
    """An image on a map.

    Attributes:
        size: (height, width).
        crs: its coordinate system; None if only the transform is known, as from a world file.
        to_map: [3, 3], from pixels (x, y, 1) to the map.
    """

    file: Path
    size: tuple[int, int]
    crs: CRS | None
    to_map: np.ndarray

    @cached_property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The least and the largest (x, y) on the map."""
        height, width = self.size
        corners = np.array([[0, 0, 1], [width, 0, 1], [0, height, 1], [width, height, 1]])
        placed = (corners @ self.to_map.T)[:, :2]
        return placed.min(0), placed.max(0)

    def pixels(self, points: np.ndarray) -> np.ndarray:
        """Points [n, 2] of the map in pixels."""
        matrix = np.linalg.inv(self.to_map[:2, :2])
        return (points - self.to_map[:2, 2]) @ matrix.T


# The objects of each image, by their places in a file, and whether they leave it.
Inside = dict[GeoImage, dict[str, tuple[Shape, bool]]]


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
                to_map = np.reshape(image.transform, (3, 3))
                found = GeoImage(file, image.shape, image.crs, to_map)
    except RasterioIOError:
        return None
    return None if np.array_equal(to_map, np.eye(3)) else found


def project(points: np.ndarray, crs: CRS | None, target: CRS | None) -> np.ndarray:
    """Points [n, 2] in another coordinate system, NaN where they have no place in it.

    They stay as they are where one of the two systems is not known.
    """
    if crs is None or target is None or crs == target:
        return points
    try:
        placed = np.stack(transform(crs, target, *points.T), 1)
    except Exception:  # GDAL's, which has no public class, for one point of which PROJ has no place
        if len(points) == 1:
            return np.full_like(points, np.nan)
        halves = np.array_split(points, 2)
        return np.concatenate([project(some, crs, target) for some in halves])
    return np.where(np.isfinite(placed), placed, np.nan)


def overlapping(features: Sequence[Feature], crs: CRS | None, images: Sequence[GeoImage]) -> Inside:
    """The objects of each image that cover a pixel of it.

    Args:
        features: with polygons.
        crs: their coordinate system; None for the system of each image.
    """
    rings = [ring for one in features for polygon in one.polygons for ring in polygon]
    first = np.cumsum([0, *(sum(map(len, one.polygons)) for one in features)])  # ring of each
    ends = np.cumsum([0, *map(len, rings)])
    lows, highs = np.array([image.bounds for image in images]).swapaxes(0, 1)  # [images, 2]
    inside: Inside = {}
    for target in {image.crs for image in images}:
        points = project(np.concatenate(rings), crs, target)
        if np.isnan(points).all():
            continue
        least = np.minimum.reduceat(points, ends[first[:-1]])
        most = np.maximum.reduceat(points, ends[first[:-1]])
        order = least[:, 0].argsort()
        lefts, widest = least[order, 0], np.nanmax(most[:, 0] - least[:, 0], initial=0)
        near = (np.nanmin(points, 0) <= highs) & (np.nanmax(points, 0) >= lows)
        for image in [images[n] for n in np.flatnonzero(near.all(1)) if images[n].crs == target]:
            low, high = image.bounds
            start, stop = np.searchsorted(lefts, (low[0] - widest, high[0]))
            some = order[start : stop + 1]
            for n in np.sort(some[((least[some] <= high) & (most[some] >= low)).all(1)]):
                one, (start, stop) = features[n], first[n : n + 2]
                pixels = image.pixels(points[ends[start] : ends[stop]])
                pieces = iter(np.split(pixels, ends[start + 1 : stop] - ends[start]))
                polygons = [[next(pieces) for _ in polygon] for polygon in one.polygons]
                if (found := outline_in(polygons, *image.size)) is None:
                    continue
                box, outline, is_cut = found
                shape = Shape(one.label, box, outline, where=one.where)
                inside.setdefault(image, {})[one.where] = shape, is_cut
    return inside


def outline_in(
    polygons: Sequence[Polygon], height: int, width: int
) -> tuple[Box, list[list[float]], bool] | None:
    """The part of an object in an image: its box, the outline, and whether that leaves the image.

    None for a part of less than a pixel. The outline is not clipped, unless its corners are far.
    """
    corners = np.concatenate([outer for outer, *_ in polygons])
    if is_cut := bool((corners < -0.01).any() or (corners > (width + 0.01, height + 0.01)).any()):
        clipped = [[clipped_ring(ring, height, width) for ring in rings] for rings in polygons]
        areas = [[abs(area_of(ring)) for ring in rings] for rings in clipped]
        if not sum(outer - sum(holes) for outer, *holes in areas) >= 1:
            return None
        if np.abs(corners).max() > FAR * max(height, width):
            polygons = [[ring for ring in rings if len(ring)] for rings in clipped if len(rings[0])]
        corners = np.concatenate([outer for outer, *_ in clipped])
    outline = [joined(outer, holes).reshape(-1).tolist() for outer, *holes in polygons]
    return bounding_box(corners), outline, is_cut


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


def area_of(ring: np.ndarray) -> float:
    """The area of a ring, negative for one of the two directions."""
    x, y = (ring - ring[:1]).T
    return float(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2


def joined(outer: np.ndarray, holes: Sequence[np.ndarray]) -> np.ndarray:
    """A polygon with holes as one ring: a line leads into each hole, and back."""
    for hole in holes:
        ordered = hole[::-1] if area_of(hole) * area_of(outer) > 0 else hole
        place = int(((outer - ordered[0]) ** 2).sum(1).argmin())
        outer = np.concatenate([outer[: place + 1], ordered, ordered[:1], outer[place:]])
    return outer
