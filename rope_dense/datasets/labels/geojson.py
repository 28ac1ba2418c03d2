"""GeoJSON (RFC 7946) over georeferenced images: polygons on a map as outlines in pixels.

A file is of the image of its name, else of every image that its objects overlap. Coordinates are
longitude and latitude, or in the system that the older member `crs` names. What ``predict-large``
writes is read back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from .files import class_name, naming, read_json
from .georeference import GeoImage, geo_image, outline_in, project
from .inventory import Inventory
from .objects import Format, LabelFolder, Labelled, Part, Read, Report, Shape
from .pairs import Kind, find_pairs, read_pairs, recognised
from .shared_files import SharedFiles, counts, files_of, note_rest, takes
from .splits import split_pairs

if find_spec('rasterio'):
    from rasterio.crs import CRS

CLASS = ('class', 'label', 'class_name', 'category', 'name')  # properties; the first is taken
MANY = 10  # objects, of which each has its own name: none is a class
ONE_CLASS = 'object'  # its name where no property and no classes.txt names it
OUTSIDE = 'object outside of its image'
OTHERS = ('.shp', '.gpkg')  # which GDAL converts


def find_geojson(inventory: Inventory) -> LabelFolder | None:
    """A file for each image, or files of many images.

    Raises:
        ValueError: rasterio is missing, no object is in an image, or labels are shapefiles.
    """
    root = inventory.root
    found = inventory.paths(root, ('.geojson',))
    kind = FILES if found else replace(FILES, suffixes=('.json',))  # beside a.geojson is other JSON
    files = [Path(path) for path in recognised(inventory.paths(root, kind.suffixes), kind)]
    if not files and (others := inventory.paths(root, OTHERS)):
        name = Path(others[0]).name
        raise ValueError(f'{others[0]}: convert it by `ogr2ogr -f GeoJSON labels.geojson {name}`')
    if not files or not inventory.images(root).by_path:
        return None
    if not find_spec('rasterio'):
        raise ValueError(f'{files[0]} is placed by rasterio: install the extra "large"')
    if (pairs := find_pairs(inventory, kind)) and pairs.image_of:
        return LabelFolder(GEOJSON, *split_pairs(pairs, inventory))
    shared = SharedFiles(kind, inventory)
    images_of = {
        file: [
            image.file
            for image in place(
                collection(file), geo_images(shared.images(file).by_path.values(), inventory)
            )
        ]
        for file in files
        if is_geojson(file)
    }
    if not any(images_of.values()):
        raise ValueError(
            f'{files[0]}: none of its objects is in an image of {root}: are the images '
            'georeferenced (GeoTIFF), and is the coordinate system of the file right?'
        )
    return LabelFolder(GEOJSON, *shared.split(images_of))


def read_geojson(part: Part, classes: Sequence[str] | None, report: Report) -> Read:
    """Images with a file of their name, which may have no object; else those with objects.

    Objects have one class, `classes` or ``ONE_CLASS``, if they have no text property.
    """
    files = [*part.pairs, *part.orphans] if part.pairs else files_of(part, FILES.suffixes)
    files = [file for file in files if is_geojson(file)]
    key = class_property(files, part.source, report)
    only = classes[0] if classes and len(classes) == 1 else ONE_CLASS

    def read(path: Path, image: Path) -> Labelled | None:
        if not is_geojson(path):
            return None
        if not (images := geo_images([image], part.inventory)):
            raise ValueError(f'{image} is not georeferenced, as {path} needs it: save a GeoTIFF')
        found = collection(path, key, only)
        inside = place(found, images, report).get(images[0], {})
        item = Labelled(image, [*inside.values()], images[0].size)
        for one in found.features:
            if one.where not in inside:
                item.leave_out(one.problem or OUTSIDE, one.where, one.label)
        return item

    def shared() -> Iterator[Labelled]:
        candidates, items = SharedFiles(FILES, part.inventory), dict[Path, Labelled]()
        for file in files:
            found, seen = collection(file, key, only), set[str]()
            images = geo_images(candidates.images(file).by_path.values(), part.inventory)
            for image, inside in place(found, images, report).items():
                seen |= inside.keys()
                if takes(part, image.file):
                    item = items.setdefault(image.file, Labelled(image.file, size=image.size))
                    item.shapes += inside.values()
            for one in found.features if counts(part, file) else ():
                if one.where not in seen:
                    report.leave_out(one.problem or 'object that is in no image', one.where)
        yield from items.values()
        note_rest(part, 'image without an object (not labelled, so left out)', report)

    def number(path: Path) -> int | None:
        return len(collection(path).features) if is_geojson(path) else None

    return classes or (), read_pairs(part, FILES, report, read, number) if part.pairs else shared()


@dataclass
class Feature:
    """An object on a map.

    Attributes:
        problem: why it has no area; '' if it has.
        polygons: of each the rings [n, 2], the outer one first.
    """

    where: str
    label: str
    properties: dict[str, Any]
    problem: str
    polygons: list[list[np.ndarray]]


@dataclass
class Collection:
    """The objects of a file, and the coordinate system, if the file says one."""

    file: Path
    crs: CRS | None
    features: list[Feature]


def is_geojson(path: Path) -> bool:
    """Return whether a file has a FeatureCollection, or the suffix .geojson."""
    if path.suffix.lower() == '.geojson':
        return True
    with path.open('rb') as file:  # of large files of other formats only the start is read
        start = file.read(4096)
        return bool(re.search(rb'"(Feature|features)', start)) and (
            b'"FeatureCollection"' in start + file.read()
        )


def collection(path: Path, key: str | None = None, only: str = ONE_CLASS) -> Collection:
    """The objects of a file.

    Args:
        key: property with the class; None if all are of the class `only`.

    Raises:
        ValueError: no FeatureCollection, or a broken feature; the message has its number.
    """
    content, features = read_json(path), list[Feature]()
    with naming(path):
        given = content.get('features') if isinstance(content, dict) else None
        if not isinstance(given, list) or content.get('type') != 'FeatureCollection':
            raise ValueError('no FeatureCollection of GeoJSON')
        crs = content.get('crs')
        crs = CRS.from_user_input(crs['properties']['name']) if crs else None
        for number, one in enumerate(given, start=1):
            where = f'{path.name}, feature {number}'
            with naming(where):
                features.append(feature_of(one, where, key, only))
    return Collection(path, crs, features)


def feature_of(given: dict[str, Any], where: str, key: str | None, only: str) -> Feature:
    """An object, without holes and parts of less than three corners."""
    geometry, properties = given['geometry'] or {}, given.get('properties') or {}
    label = only if key is None else properties.get(key)
    if not is_name(label):
        raise ValueError(f'its property {key!r}, which says the class, is {label!r:.80}')
    kind, coordinates = geometry.get('type'), geometry.get('coordinates') or []
    polygons, problem = list[list[np.ndarray]](), ''
    if kind in ('Polygon', 'MultiPolygon'):
        parts = [coordinates] if kind == 'Polygon' else coordinates
        parts = [[ring_of(ring) for ring in part] for part in parts if part]
        polygons = [[r for r in rings if len(r) > 2] for rings in parts if len(rings[0]) > 2]
        problem = '' if polygons else 'polygon of less than three corners'
    else:
        problem = f'object of type {kind}' if kind else 'object without a geometry'
    return Feature(where, class_name(label), properties, problem, polygons)


def ring_of(given: Any) -> np.ndarray:
    """The corners [n, 2] of a closed ring, each once, without heights."""
    try:
        ring = np.array([corner[:2] for corner in given], float).reshape(-1, 2)
    except (TypeError, ValueError):
        ring = np.array([[np.nan, np.nan]])
    if not np.isfinite(ring).all():
        raise ValueError(f'a ring is {given!r:.80}, not [[x, y], ...]')
    return ring[:-1] if len(ring) and (ring[0] == ring[-1]).all() else ring


def is_name(value: Any) -> bool:
    """Return whether a property may name a class: a text, or a whole number."""
    return bool(str(value).strip()) and type(value) in (str, int)


def class_property(files: Iterable[Path], source: Path, report: Report) -> str | None:
    """The property with the class of each object; None if there is neither one nor another text.

    Raises:
        ValueError: several text properties, of which none has a usual name; or each of many
            objects has its own name.
    """
    values, texts, total = dict[str, set[str]](), dict[str, None](), 0
    for file in files:
        for feature in collection(file).features:
            total += 1
            for key, value in feature.properties.items():
                if is_name(value):
                    values.setdefault(key, set()).add(class_name(value))
                    texts |= {key: None} if isinstance(value, str) else {}
    usual = [key for name in CLASS for key in values if key.lower() == name]
    found = usual[:1] or [*texts]
    if len(found) > 1:
        raise ValueError(
            f'{source}: which property is the class, of {", ".join(found)}? Call it "class"'
        )
    if not found:
        report.note('set of objects without a text property (all are of one class)', source.name)
        return None
    key, names = found[0], len(values[found[0]])
    if key.lower() not in CLASS[:-1] and names == total > MANY:
        raise ValueError(
            f'{source}: no property "class", and {key!r} has another text for each of {total} '
            'objects: name their classes by a property "class"'
        )
    report.note(f'set of objects whose property {key!r} is their class', source.name)
    return key


def place(
    found: Collection, images: Sequence[GeoImage], report: Report | None = None
) -> dict[GeoImage, dict[str, Shape]]:
    """The objects of each image, by their places in the file.

    Without a system in the file, coordinates are in degrees, as RFC 7946 has them; those that
    cannot be, or that are in no image, are in the system of the images.
    """
    features = [one for one in found.features if one.polygons]
    if not features or not images:
        return {}
    extents = np.array([np.abs(rings[0]).max(0) for one in features for rings in one.polygons])
    systems: list[CRS | None] = [found.crs] if found.crs else [CRS.from_epsg(4326), None]
    if found.crs is None and (extents > (180, 90)).any():
        systems = [None]
    for crs in systems:
        if inside := overlapping(features, crs, images, report):
            if crs is None and report:
                said = images[0].crs.to_string() if images[0].crs else 'unknown'
                kind = 'file without `crs` that is not in degrees (taken as the system of the image'
                report.note(f'{kind}, {said})', found.file.name)
            return inside
    return {}


def overlapping(
    features: Sequence[Feature], crs: CRS | None, images: Sequence[GeoImage], report: Report | None
) -> dict[GeoImage, dict[str, Shape]]:
    """The objects of each image that have a pixel in it, by their places in the file.

    Args:
        crs: of the features; None for the system of each image.
    """
    rings = [ring for one in features for polygon in one.polygons for ring in polygon]
    first = np.cumsum([0, *(sum(map(len, one.polygons)) for one in features)])  # ring of each
    ends = np.cumsum([0, *map(len, rings)])
    lows, highs = np.array([image.bounds for image in images]).swapaxes(0, 1)
    inside: dict[GeoImage, dict[str, Shape]] = {}
    for target in {image.crs for image in images}:
        points = project(np.concatenate(rings), crs, target)
        least = np.minimum.reduceat(points, ends[first[:-1]])
        most = np.maximum.reduceat(points, ends[first[:-1]])
        may = (np.nanmin(least, 0) <= highs) & (np.nanmax(most, 0) >= lows)
        for image in [images[n] for n in np.flatnonzero(may.all(1)) if images[n].crs == target]:
            low, high = image.bounds
            for n in np.flatnonzero(((least <= high) & (most >= low)).all(1)):
                start, stop = first[n : n + 2]
                corners = image.pixels(points[ends[start] : ends[stop]])
                pieces = iter(np.split(corners, ends[start + 1 : stop] - ends[start]))
                polygons = [[next(pieces) for _ in polygon] for polygon in features[n].polygons]
                if (found := outline_in(polygons, *image.size)) is None:
                    continue
                box, outline, is_cut = found
                where = features[n].where
                shape = Shape(features[n].label, box, outline, where=where)
                inside.setdefault(image, {})[where] = shape
                if is_cut and report:
                    report.note('object partly outside of its image (clipped)', where)
    return inside


def geo_images(files: Iterable[Path], inventory: Inventory) -> list[GeoImage]:
    """The images that are georeferenced."""
    found = (geo_image(file, inventory.files.get(str(file), ())) for file in files)
    return [image for image in found if image is not None]


FILES = Kind(
    'GeoJSON',
    'a GeoJSON file',
    ('.geojson', '.json'),
    'annotations?|labels?|geojsons?|jsons?|vectors?|polygons?|predictions?',
    is_one=is_geojson,
)
GEOJSON = Format('geojson', 'GeoJSON', FILES.suffixes, find_geojson, read_geojson, FILES)
