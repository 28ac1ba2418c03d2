"""GeoJSON (RFC 7946) over georeferenced images: polygons on a map as outlines in pixels.

A file is of the image of its name; where no file is, each object is of all images that it overlaps.
Coordinates are longitude and latitude, or in the system that the older member `crs` names. What
``predict-large`` writes is read back.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .files import class_name, naming, read_json
from .geometry import bounding_box
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
    from shapely.geometry import shape as shapely_shape

CLASS = ('class', 'label', 'class_name', 'category', 'name')  # properties; the first is taken
ONE_CLASS = 'object'  # its name where no property and no classes.txt names it
MARGIN = 4  # times the sides of an image around it: corners farther away may have no place there


def find_geojson(inventory: Inventory) -> LabelFolder | None:
    """A file for each image, or files of many images.

    Raises:
        ValueError: rasterio or shapely is missing, or no object is in an image.
    """
    root, shared = inventory.root, SharedFiles(FILES, inventory)
    suffix = '.geojson' if inventory.paths(root, ('.geojson',)) else '.json'
    files = [Path(x) for x in recognised(inventory.paths(root, (suffix,)), FILES)]
    if not files or not shared.images.by_path:
        return None
    if not (find_spec('rasterio') and find_spec('shapely')):
        raise ValueError(
            f'{files[0]} is placed by rasterio and shapely: install the extra "large" and mmdet'
        )
    labelled: dict[Path, list[Path]] = {}
    for file, images, is_named in images_for(files, shared):
        inside = {} if is_named else place(file, geo_images(images, inventory), inventory, Report())
        labelled[file] = images if is_named else [*inside]
    if not any(labelled.values()):
        raise ValueError(
            f'{files[0]}: none of its objects is in an image of {root}: are the images '
            'georeferenced (GeoTIFF), and is the coordinate system of the file right?'
        )
    parts, by = shared.split(labelled)
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
            content, targets = inventory.content(file, features_of), geo_images(images, inventory)
            if is_named and not targets:
                raise ValueError(f'{images[0]} is not georeferenced: {file} needs a GeoTIFF')
            labels = [label_of(x, key, file) if key else only for x in content.features]
            inside = place(file, targets, inventory, report)
            for target in targets:
                if (is_named or target.file in inside) and part.takes(target.file):
                    item = found.setdefault(target.file, Labelled(target.file, size=target.size))
                    for number, outline, box, is_cut in inside.get(target.file, ()):
                        where = content.features[number].where
                        item.shapes.append(Shape(labels[number], box, outline, where=where))
                        if is_cut:
                            report.note('object partly outside of its image (clipped)', where)
            seen = {number for objects in inside.values() for number, *_ in objects}
            hint = '' if seen else ', as all of its file: is the coordinate system right?'
            for number, one in enumerate(content.features):
                if is_named and number not in seen:
                    why = one.problem or f'object outside of its image{hint}'
                    found[images[0]].leave_out(why, one.where, labels[number])
                elif number not in seen and (why := files[file]):
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
    texts, images = map(str, filter(is_geojson, files)), map(str, shared.images.by_path.values())
    pairs = match(FILES, shared.images.folder, images, texts)
    for file in map(Path, pairs.files):
        if image := pairs.image_of.get(str(file)):
            yield file, [Path(image)], True
        else:
            every = [] if pairs.image_of else shared.images_for(file).by_path.values()
            yield file, [*every], False


def is_geojson(path: Path) -> bool:
    """Return whether a file has a FeatureCollection, or the suffix .geojson."""
    if path.suffix.lower() == '.geojson':
        return True
    with path.open('rb') as file:  # of large files of other formats only the start is read
        start = file.read(4096)
        is_likely = re.search(rb'"(Feature|features)', start) is not None
        return is_likely and b'"FeatureCollection"' in start + file.read()


class Feature(NamedTuple):
    """An object on a map, by its place in a file; without a polygon because of a problem."""

    where: str
    properties: Mapping[str, Any]
    polygon: shapely.MultiPolygon
    problem: str


class Features(NamedTuple):
    """The objects of a file, a tree of their polygons, and the system if the file says it."""

    features: Sequence[Feature]
    tree: shapely.STRtree
    crs: CRS | None


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
                properties = {**(one.get('properties') or {})}
                features.append(Feature(where, properties, *polygon_of(one.get('geometry') or {})))
    return Features(features, shapely.STRtree([one.polygon for one in features]), crs)


def polygon_of(geometry: Mapping[str, Any]) -> tuple[shapely.MultiPolygon, str]:
    """The polygons of a geometry, which do not cross, and the problem if there is none."""
    kind, given = geometry.get('type'), geometry.get('coordinates') or []
    if kind not in ('Polygon', 'MultiPolygon'):
        problem = f'object of type {kind}' if kind else 'object without a geometry'
        return shapely.MultiPolygon(), problem
    try:
        found = shapely.force_2d(shapely_shape(dict(type=kind, coordinates=given)))
        parts = shapely.get_parts(shapely.get_parts(shapely.make_valid(found)))
    except (ValueError, TypeError, LookupError, OverflowError, shapely.errors.ShapelyError):
        raise ValueError(f'its coordinates are {given!r:.80}, which is no {kind}') from None
    polygon = shapely.MultiPolygon([one for one in parts if one.geom_type == 'Polygon'])
    return polygon, 'polygon without an area' if polygon.is_empty else ''


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
    found = usual[:1] or [key for key, some in types.items() if str in some]
    if len(found) > 1:
        raise ValueError(
            f'{part.source}: which property is the class, of {", ".join(found)}? Call it "class"'
        )
    kind = 'without a text property (all are of one class)'
    kind = f'whose property {found[0]!r} is their class' if found else kind
    report.note(f'set of objects {kind}', part.source.name)
    return found[0] if found else None


def label_of(feature: Feature, key: str, file: Path) -> str:
    """The class of an object; ValueError if it has none."""
    if not is_name(label := feature.properties.get(key)):
        where = f'{file.parent}/{feature.where}'
        raise ValueError(f'{where}: its property {key!r}, the class, is {label!r:.80}')
    return class_name(label)


class GeoImage(NamedTuple):
    """An image of (height, width) pixels on a map.

    Attributes:
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
    """An image on a map, in this state of its file; None for one without a transform to a map."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore', NotGeoreferencedWarning)
            with rasterio.open(file) as image:
                to_map = np.reshape(image.transform[:9], (3, 3))
                found = GeoImage(file, image.shape, image.crs, tuple(image.bounds), to_map)
    except RasterioIOError:
        return None
    return None if np.array_equal(to_map, np.eye(3)) else found


def geo_images(files: Iterable[Path], inventory: Inventory) -> list[GeoImage]:
    """The images that are georeferenced."""
    found = (geo_image(file, inventory.files.get(str(file), ())) for file in files)
    return [image for image in found if image is not None]


# Number of an object in its file, its outline, its box in the image, and whether that is clipped.
Placed = tuple[int, list[list[float]], Box, bool]


def place(
    file: Path, images: Sequence[GeoImage], inventory: Inventory, report: Report
) -> dict[Path, list[Placed]]:
    """The objects of each image that has some.

    Without a system in the file, coordinates are in degrees, as RFC 7946 has them; where these are
    in no image, they are in the system of the images.
    """
    content = inventory.content(file, features_of)
    for crs in [content.crs] if content.crs else [CRS.from_epsg(4326), None]:
        inside = {image.file: placed_in(image, content.tree, crs) for image in images}
        if inside := {image: objects for image, objects in inside.items() if objects}:
            if crs is None:
                system = images[0].crs.to_string() if images[0].crs else 'not known'
                kind = f'file that is not in degrees (taken as the system of its images, {system})'
                report.note(kind, file.name)
            return inside
    return {}


def placed_in(image: GeoImage, tree: shapely.STRtree, crs: CRS | None) -> list[Placed]:
    """The objects that cover a pixel of an image; `crs` is None for the system of the image."""
    (height, width), bounds, to_pixels = image.size, image.bounds, np.linalg.inv(image.to_map)
    is_other = None not in (crs, image.crs) and crs != image.crs

    def in_pixels(points: np.ndarray) -> np.ndarray:  # [n, 2]
        x, y = transform(crs, image.crs, *points.T) if is_other else points.T
        return (np.stack([x, y, np.ones(len(points))], 1) @ to_pixels.T)[:, :2]

    try:
        left, bottom, right, top = transform_bounds(image.crs, crs, *bounds) if is_other else bounds
        areas = np.array([[left, bottom, right, top]])
        if left > right:  # it is on both sides of the date line
            areas = np.array([[left, bottom, 180, top], [-180, bottom, right, top]])
        near = np.unique(tree.query(shapely.box(*areas.T))[1])
        low, high = areas.min(0)[:2], areas.max(0)[2:]
        margin = MARGIN * (high - low)
        around = shapely.clip_by_rect(tree.geometries[near], *(low - margin), *(high + margin))
        polygons = shapely.transform(around, in_pixels)
    except Exception:  # GDAL's, which has no public class, where a system is not of this place
        return []
    parts = shapely.clip_by_rect(polygons, 0, 0, width, height)
    ends, areas = shapely.bounds(parts), shapely.area(parts)
    found = list[Placed]()
    for number, polygon, box, area in zip(
        near.tolist(), polygons, ends.tolist(), areas, strict=True
    ):
        is_cut = not np.allclose(box, polygon.bounds, rtol=0, atol=0.01)
        if area >= 1 or not is_cut:
            found.append((number, outline_of(polygon), bounding_box(box), is_cut))
    return found


def outline_of(polygon: shapely.Geometry) -> list[list[float]]:
    """The polygons of an object in pixels; a line leads into each hole, and back."""
    outline = []
    for one in shapely.get_parts(polygon):
        outer, *holes = map(shapely.get_coordinates, (one.exterior, *one.interiors))
        path = [outer, *(points for hole in holes for points in (hole, outer[:1]))]
        outline.append(np.concatenate(path)[:-1].ravel().tolist())
    return outline


FILES = Kind(
    'GeoJSON',
    'an object',
    ('.geojson', '.json'),
    'annotations?|labels?|geojsons?|jsons?|vectors?|polygons?',
    is_one=is_geojson,
)
GEOJSON = Format('geojson', 'GeoJSON', FILES.suffixes, find_geojson, read_geojson)
