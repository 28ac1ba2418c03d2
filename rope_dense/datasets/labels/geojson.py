"""GeoJSON (RFC 7946) over georeferenced images: polygons on a map as outlines in pixels.

A file is of the image of its name; where no file is, each object is of all images that it overlaps.
Coordinates are longitude and latitude, or in the system that the older member `crs` names. What
``predict-large`` writes is read back.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from .files import class_name, naming, read_json
from .inventory import Inventory, State
from .objects import Box, Format, LabelFolder, Labelled, Part, Read, Report, Shape
from .pairs import Kind, match, recognised
from .shared_files import SharedFiles, files_of

if find_spec('rasterio') and find_spec('shapely'):
    import rasterio
    import shapely
    from rasterio.crs import CRS
    from rasterio.errors import CRSError, NotGeoreferencedWarning, RasterioIOError
    from rasterio.warp import transform, transform_bounds

CLASS = ('class', 'label', 'class_name', 'category', 'name')  # properties; the first is taken
ONE_CLASS = 'object'  # its name where no property and no classes.txt names it
MARGIN = 4  # times the sides of an image around it: corners farther away may have no place there


def find_geojson(inventory: Inventory) -> LabelFolder | None:
    """A file for each image, or files of many images.

    Raises:
        ValueError: rasterio or shapely is missing, or no object is in an image.
    """
    root = inventory.root
    suffix = '.geojson' if inventory.paths(root, ('.geojson',)) else '.json'
    files = [Path(x) for x in recognised(inventory.paths(root, (suffix,)), FILES)]
    shared, labelled = SharedFiles(FILES, inventory), dict[Path, list[Path]]()
    if not files or not shared.all.by_path:
        return None
    if not (find_spec('rasterio') and find_spec('shapely')):
        raise ValueError(
            f'{files[0]} is placed by rasterio and shapely: install the extra "large" and mmdet'
        )
    for file, images, is_named in images_for(files, shared):
        inside = {} if is_named else place(file, geo_images(images, inventory), inventory, Report())
        labelled[file] = images if is_named else [image.file for image in inside]
    if not any(labelled.values()):
        raise ValueError(
            f'{files[0]}: none of its objects is in an image of {root}: are the images '
            'georeferenced (GeoTIFF), and is the coordinate system of the file right?'
        )
    parts, by = shared.split(labelled, 'image without an object (not labelled, so left out)')
    # Headers do not have the georeferences, so what is kept of an earlier start depends on this.
    found = geo_images([image for some in labelled.values() for image in some], inventory)
    options = dict(georeferences=[(str(one.crs), one.to_map.tolist()) for one in found])
    return LabelFolder(GEOJSON, {x: replace(one, options=options) for x, one in parts.items()}, by)


def read_geojson(part: Part, classes: Sequence[str] | None, report: Report) -> Read:
    """Images with a file of their name, which may have no object; else those with objects.

    Objects have one class, `classes` or ``ONE_CLASS``, if they have no text property.
    """
    files, inventory = files_of(part, FILES.suffixes), part.inventory

    def items() -> Iterator[Labelled]:
        found: dict[Path, Labelled] = {}
        key = class_property(filter(is_geojson, files), part, report)
        only = classes[0] if classes and len(classes) == 1 else ONE_CLASS
        for file, images, is_named in images_for(files, SharedFiles(FILES, inventory)):
            if is_named and not part.takes(images[0]):
                continue
            features = inventory.content(file, features_of).features
            labels = [only if key is None else label_of(one, key, file) for one in features]
            targets = geo_images(images, inventory)
            if is_named and not targets:
                raise ValueError(f'{images[0]} is not georeferenced: {file} needs a GeoTIFF')
            inside = place(file, targets, inventory, report)
            for target in filter(lambda one: part.takes(one.file), targets if is_named else inside):
                item = found.setdefault(target.file, Labelled(target.file, size=target.size))
                for number, polygon, box, is_cut in inside.get(target, ()):
                    where = features[number].where
                    shape = Shape(labels[number], box, outline_of(polygon), where=where)
                    item.shapes.append(shape)
                    if is_cut:
                        report.note('object partly outside of its image (clipped)', where)
            seen = {number for placed in inside.values() for number, *_ in placed}
            hint = '' if seen else ', as all of its file: is the coordinate system right?'
            for number in sorted({*range(len(features))} - seen):
                one = features[number]
                if is_named:
                    why = one.problem or f'object outside of its image{hint}'
                    found[images[0]].leave_out(why, one.where, labels[number])
                elif why := files[file]:
                    why = 'object that is in no image' if images else why
                    report.leave_out(one.problem or why, one.where)
        yield from found.values()
        for note in part.notes:
            report.note(*note)

    return classes or (), items()


def images_for(
    files: Iterable[Path], shared: SharedFiles
) -> Iterator[tuple[Path, list[Path], bool]]:
    """The image that has the name of a file, and True; if no file has one, all it may be of."""
    texts, images = map(str, filter(is_geojson, files)), map(str, shared.all.by_path.values())
    pairs = match(FILES, shared.all.folder, images, texts)
    for file in pairs.files:
        if named := pairs.image_of.get(file):
            yield Path(file), [Path(named)], True
        else:
            every = [] if pairs.image_of else shared.images_for(Path(file)).by_path.values()
            yield Path(file), [*every], False


def is_geojson(path: Path) -> bool:
    """Return whether a file has a FeatureCollection, or the suffix .geojson."""
    if path.suffix.lower() == '.geojson':
        return True
    with path.open('rb') as file:  # of large files of other formats only the start is read
        start = file.read(4096)
        is_likely = re.search(rb'"(Feature|features)', start) is not None
        return is_likely and b'"FeatureCollection"' in start + file.read()


@dataclass
class Feature:
    """An object on a map.

    Attributes:
        where: its place, such as 'a.geojson, feature 3'.
        polygon: of shapely; empty with a `problem`.
    """

    where: str
    properties: Mapping[str, Any]
    polygon: shapely.MultiPolygon
    problem: str


class Features:
    """The objects of a file; `crs` is None if the file does not say it."""

    def __init__(self, crs: CRS | None, features: list[Feature]) -> None:
        self.crs, self.features = crs, features
        self.tree = shapely.STRtree([one.polygon for one in features])


def features_of(path: Path) -> Features:
    """The objects of a file.

    Raises:
        ValueError: no FeatureCollection, or a broken feature; the message has its number.
    """
    features = list[Feature]()
    with naming(path):
        content = read_json(path)
        given = content.get('features') if isinstance(content, dict) else None
        if not isinstance(given, list) or content.get('type') != 'FeatureCollection':
            raise ValueError('no FeatureCollection of GeoJSON')
        try:
            crs = content.get('crs')
            crs = CRS.from_user_input(crs['properties']['name']) if crs else None
        except (KeyError, TypeError, CRSError):
            raise ValueError(f'its crs is {crs!r:.80}, which is not known') from None
        for number, one in enumerate(given, start=1):
            with naming(where := f'{path.name}, feature {number}'):
                if not isinstance(one, dict):
                    raise ValueError(f'it is {one!r:.80}, which is no Feature')
                polygon, problem = polygon_of(one.get('geometry') or {})
                properties = {**(one.get('properties') or {})}
                features.append(Feature(where, properties, polygon, problem))
    return Features(crs, features)


def polygon_of(geometry: Mapping[str, Any]) -> tuple[shapely.MultiPolygon, str]:
    """The polygons of a geometry, and the problem if there is none.

    Rings of less than three corners, and heights, are left out.
    """
    kind, given = geometry.get('type'), geometry.get('coordinates') or []
    if kind not in ('Polygon', 'MultiPolygon'):
        problem = f'object of type {kind}' if kind else 'object without a geometry'
        return shapely.MultiPolygon(), problem
    parts = []
    for rings in [given] if kind == 'Polygon' else given:
        outer, *holes = [ring_of(ring) for ring in rings] or [[]]
        if len(outer) > 2:
            parts.append((outer, [hole for hole in holes if len(hole) > 2]))
    return shapely.MultiPolygon(parts), '' if parts else 'polygon of less than three corners'


def ring_of(given: Any) -> np.ndarray:
    """The corners [n, 2] of a closed ring, each once."""
    try:
        ring = np.array([corner[:2] for corner in given], float).reshape(-1, 2)
    except (TypeError, ValueError, KeyError):
        ring = np.full((1, 2), np.nan)
    if not np.isfinite(ring).all():
        raise ValueError(f'a ring is {given!r:.80}, not [[x, y], ...]')
    return ring[:-1] if len(ring) and (ring[0] == ring[-1]).all() else ring


def is_name(value: Any) -> bool:
    """Return whether a property may name a class: a text, or a whole number."""
    return bool(str(value).strip()) and type(value) in (str, int)


def class_property(files: Iterable[Path], part: Part, report: Report) -> str | None:
    """The property with the class of each object; None if there is neither one nor another text.

    Raises:
        ValueError: several text properties, of which none has a usual name.
    """
    types: dict[str, set[type]] = {}
    for feature in (one for x in files for one in part.inventory.content(x, features_of).features):
        for key, value in feature.properties.items():
            if is_name(value):
                types.setdefault(key, set()).add(type(value))
    usual = [key for name in CLASS for key in types if key.lower() == name]
    if not (found := usual[:1] or [key for key, some in types.items() if str in some]):
        kind = 'set of objects without a text property (all are of one class)'
        report.note(kind, part.source.name)
        return None
    if len(found) > 1:
        raise ValueError(
            f'{part.source}: which property is the class, of {", ".join(found)}? Call it "class"'
        )
    report.note(f'set of objects whose property {found[0]!r} is their class', part.source.name)
    return found[0]


def label_of(feature: Feature, key: str, file: Path) -> str:
    """The class of an object; ValueError if it has none."""
    label = feature.properties.get(key)
    if not is_name(label):
        name = f'{file.parent}/{feature.where}'
        raise ValueError(f'{name}: its property {key!r}, the class, is {label!r:.80}')
    return class_name(label)


@dataclass(frozen=True, eq=False)
class GeoImage:
    """An image on a map.

    Attributes:
        size: (height, width).
        crs: its coordinate system; None if only the transform is known, as from a world file.
        bounds: left, bottom, right and top on the map.
        to_map: [3, 3], from pixels (x, y, 1) to the map.
    """

    file: Path
    size: tuple[int, int]
    crs: CRS | None
    bounds: tuple[float, float, float, float]
    to_map: np.ndarray


@lru_cache(None)
def geo_image(file: Path, state: State) -> GeoImage | None:
    """An image on a map; None for one without a transform to a map, or in another `state`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore', NotGeoreferencedWarning)
            with rasterio.open(file) as image:
                to_map = np.reshape(image.transform, (3, 3))
                found = GeoImage(file, image.shape, image.crs, tuple(image.bounds), to_map)
    except RasterioIOError:
        return None
    return None if np.array_equal(to_map, np.eye(3)) else found


def geo_images(files: Sequence[Path], inventory: Inventory) -> list[GeoImage]:
    """The images that are georeferenced."""
    found = (geo_image(file, inventory.files.get(str(file), ())) for file in files)
    return [image for image in found if image is not None]


# Number of an object in its file, polygon in pixels, box in the image, whether the box is clipped.
Placed = tuple[int, 'shapely.Geometry', Box, bool]


def place(
    file: Path, images: Sequence[GeoImage], inventory: Inventory, report: Report
) -> dict[GeoImage, list[Placed]]:
    """The objects of each image that has some.

    Without a system in the file, coordinates are in degrees, as RFC 7946 has them; where these are
    in no image, they are in the system of the images.
    """
    content = inventory.content(file, features_of)
    for crs in [content.crs] if content.crs else [CRS.from_epsg(4326), None]:
        placed = {image: placed_in(image, content.tree, crs) for image in images}
        if inside := {image: objects for image, objects in placed.items() if objects}:
            if crs is None:
                system = images[0].crs.to_string() if images[0].crs else 'not known'
                kind = f'file that is not in degrees (taken as the system of its images, {system})'
                report.note(kind, file.name)
            return inside
    return {}


def placed_in(image: GeoImage, tree: shapely.STRtree, crs: CRS | None) -> list[Placed]:
    """The objects that cover a pixel of an image.

    Args:
        crs: their coordinate system; None for the system of the image.
    """
    (height, width), bounds = image.size, image.bounds
    is_other = None not in (crs, image.crs) and crs != image.crs
    to_pixels = np.linalg.inv(image.to_map)

    def in_pixels(points: np.ndarray) -> np.ndarray:  # [n, 2]
        x, y = transform(crs, image.crs, *points.T) if is_other else points.T
        return (np.stack([x, y, np.ones(len(points))], 1) @ to_pixels.T)[:, :2]

    try:
        left, bottom, right, top = transform_bounds(image.crs, crs, *bounds) if is_other else bounds
        areas = [(left, bottom, right, top)]
        if left > right:  # it is on both sides of the date line
            areas = [(left, bottom, 180, top), (-180, bottom, right, top)]
        near = np.unique(tree.query([shapely.box(*area) for area in areas])[1])
        polygons = tree.geometries[near]
        margin = MARGIN * np.ptp(np.reshape(areas, (-1, 2)), 0)
        low, high = np.min(areas, 0)[:2] - margin, np.max(areas, 0)[2:] + margin
        ends = shapely.bounds(polygons)
        is_far = ((ends[:, :2] < low) | (ends[:, 2:] > high)).any(1)
        cut = shapely.clip_by_rect(shapely.make_valid(polygons[is_far]), *low, *high)
        polygons[is_far] = cut
        polygons = shapely.transform(polygons, in_pixels)
    except Exception:  # GDAL's, which has no public class, where a system is not of this place
        return []
    parts = shapely.clip_by_rect(shapely.make_valid(polygons), 0, 0, width, height)
    left, top, right, bottom = ends = shapely.bounds(parts).T
    is_cut = ~(np.abs(ends.T - shapely.bounds(polygons)).max(1, initial=0) <= 0.01)
    boxes = np.stack([left, top, right - left, bottom - top], 1).tolist()
    is_seen = ~is_cut | (shapely.area(parts) >= 1)
    found = zip(near.tolist(), polygons, map(tuple, boxes), is_cut.tolist(), strict=True)
    return [one for one, seen in zip(found, is_seen, strict=True) if seen]


def outline_of(polygon: shapely.Geometry) -> list[list[float]]:
    """The polygons of an object in pixels; a line leads into each hole, and back."""
    outline = []
    for one in shapely.get_parts(polygon):
        if one.geom_type == 'Polygon':
            outer, *holes = map(shapely.get_coordinates, (one.exterior, *one.interiors))
            path = [outer, *(points for hole in holes for points in (hole, outer[:1]))]
            outline.append(np.concatenate(path)[:-1].ravel().tolist())
    return outline


FILES = Kind(
    'GeoJSON',
    'a GeoJSON file',
    ('.geojson', '.json'),
    'annotations?|labels?|geojsons?|jsons?|vectors?|polygons?',
    is_one=is_geojson,
)
GEOJSON = Format('geojson', 'GeoJSON', FILES.suffixes, find_geojson, read_geojson)
