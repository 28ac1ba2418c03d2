"""GeoJSON (RFC 7946) over georeferenced images: polygons on a map as outlines in pixels.

A file is of the image of its name; where no file is, each object is of all images that it overlaps.
Coordinates are longitude and latitude, or in the system that the older member `crs` names. What
``predict-large`` writes is read back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from .files import class_name, naming, read_json
from .georeference import Feature, GeoImage, Inside, Polygon, geo_image, overlapping
from .inventory import Inventory
from .objects import NO_IMAGE, Format, LabelFolder, Labelled, Part, Read, Report
from .pairs import Kind, recognised
from .shared_files import SharedFiles, counts, files_of, note_rest

if find_spec('rasterio'):
    from rasterio.crs import CRS
    from rasterio.errors import CRSError

CLASS = ('class', 'label', 'class_name', 'category', 'name')  # properties; the first is taken
ONE_CLASS = 'object'  # its name where no property and no classes.txt names it
MANY = 10  # objects: of each another name, they are no classes


def find_geojson(inventory: Inventory) -> LabelFolder | None:
    """A file for each image, or files of many images.

    Raises:
        ValueError: rasterio is missing, or no object is in an image.
    """
    root = inventory.root
    suffix = '.geojson' if inventory.paths(root, ('.geojson',)) else '.json'
    files = [Path(x) for x in recognised(inventory.paths(root, (suffix,)), FILES)]
    if not files or not inventory.images(root).by_path:
        return None
    if not find_spec('rasterio'):
        raise ValueError(f'{files[0]} is placed by rasterio: install the extra "large"')
    shared, images_of = SharedFiles(FILES, inventory), dict[Path, list[Path]]()
    for file, images, is_named in images_for(files, shared):
        images_of[file] = images
        if not is_named:
            inside = place(collection(file), geo_images(images, inventory), Report())
            images_of[file] = [image.file for image in inside]
    if not any(images_of.values()):
        raise ValueError(
            f'{files[0]}: none of its objects is in an image of {root}: are the images '
            'georeferenced (GeoTIFF), and is the coordinate system of the file right?'
        )
    parts, by = shared.split(images_of)
    labelled = geo_images([image for some in images_of.values() for image in some], inventory)
    # Headers do not have the georeferences, so what is kept of an earlier start depends on this.
    state = crc32(repr([(str(one.crs), one.to_map.tolist()) for one in labelled]).encode())
    parts = {
        split: replace(part, options={**part.options, 'georeference': state})
        for split, part in parts.items()
    }
    return LabelFolder(GEOJSON, parts, by)


def read_geojson(part: Part, classes: Sequence[str] | None, report: Report) -> Read:
    """Images with a file of their name, which may have no object; else those with objects.

    Objects have one class, `classes` or ``ONE_CLASS``, if they have no text property.
    """
    files, inventory = files_of(part, FILES.suffixes), part.inventory

    def items() -> Iterator[Labelled]:
        shared, found = SharedFiles(FILES, inventory), dict[Path, Labelled]()
        key = class_property(files, part.source, report)
        only = classes[0] if classes and len(classes) == 1 else ONE_CLASS
        for file, images, is_named in images_for(files, shared):
            if is_named or not counts(part, file):
                images = [image for image in images if part.takes(image)]
            content, targets = collection(file, key, only), geo_images(images, inventory)
            if is_named and images and not targets:
                raise ValueError(f'{images[0]} is not georeferenced: {file} needs a GeoTIFF')
            inside = place(content, targets, report)
            for target in targets if is_named else inside:
                if part.takes(target.file):
                    item = found.setdefault(target.file, Labelled(target.file, size=target.size))
                    for shape, is_cut in inside.get(target, {}).values():
                        item.shapes.append(shape)
                        if is_cut:
                            report.note('object partly outside of its image (clipped)', shape.where)
            seen = {where for shapes in inside.values() for where in shapes}
            if is_named and images and content.features and not seen:
                kind = 'file of which no object is in its image (is its coordinate system right?)'
                report.note(kind, file.name)
            for one in content.features:
                if one.where in seen:
                    continue
                if is_named and images:
                    why = one.problem or 'object outside of its image'
                    found[images[0]].leave_out(why, one.where, one.label)
                elif not is_named and counts(part, file):
                    why = 'object that is in no image' if images else NO_IMAGE
                    report.leave_out(one.problem or why, one.where)
        yield from found.values()
        note_rest(part, 'image without an object (not labelled, so left out)', report)

    return classes or (), items()


def images_for(
    files: Sequence[Path], shared: SharedFiles
) -> Iterator[tuple[Path, list[Path], bool]]:
    """The image that has the name of a file, and True; if no file has one, all it may be of."""
    named = {file: shared.named(file) for file in files if is_geojson(file)}
    for file, image in named.items():
        if any(named.values()):
            yield file, [image] if image else [], image is not None
        else:
            yield file, [*shared.images(file).by_path.values()], False


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
        is_likely = re.search(rb'"(Feature|features)', start) is not None
        return is_likely and b'"FeatureCollection"' in start + file.read()


def collection(path: Path, key: str | None = None, only: str = ONE_CLASS) -> Collection:
    """The objects of a file.

    Args:
        key: property with the class; None if all are of the class `only`.

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
            where = f'{path.name}, feature {number}'
            with naming(where):
                if not isinstance(one, dict):
                    raise ValueError(f'it is {one!r:.80}, which is no Feature')
                properties = one.get('properties') or {}
                label = only if key is None else properties.get(key)
                if not is_name(label):
                    raise ValueError(f'its property {key!r}, the class, is {label!r:.80}')
                polygons, problem = polygons_of(one.get('geometry') or {})
                name = class_name(label)
                features.append(Feature(where, name, properties, polygons, problem))
    return Collection(path, crs, features)


def polygons_of(geometry: Mapping[str, Any]) -> tuple[list[Polygon], str]:
    """The polygons of a geometry, and the problem if there is none.

    Rings of less than three corners, and heights, are left out.
    """
    kind, coordinates = geometry.get('type'), geometry.get('coordinates') or []
    if kind not in ('Polygon', 'MultiPolygon'):
        return [], f'object of type {kind}' if kind else 'object without a geometry'
    polygons = list[Polygon]()
    for given in [coordinates] if kind == 'Polygon' else coordinates:
        outer, *holes = [ring_of(ring) for ring in given] or [np.empty((0, 2))]
        if len(outer) > 2:
            polygons.append([outer, *(hole for hole in holes if len(hole) > 2)])
    return polygons, '' if polygons else 'polygon of less than three corners'


def ring_of(given: Any) -> np.ndarray:
    """The corners [n, 2] of a closed ring, each once."""
    try:
        ring = np.array([corner[:2] for corner in given], float).reshape(-1, 2)
    except (TypeError, ValueError):
        ring = np.full((1, 2), np.nan)
    if not np.isfinite(ring).all():
        raise ValueError(f'a ring is {given!r:.80}, not [[x, y], ...]')
    return ring[:-1] if len(ring) and (ring[0] == ring[-1]).all() else ring


def is_name(value: Any) -> bool:
    """Return whether a property may name a class: a text, or a whole number."""
    return bool(str(value).strip()) and type(value) in (str, int)


def class_property(files: Sequence[Path], source: Path, report: Report) -> str | None:
    """The property with the class of each object; None if there is neither one nor another text.

    Raises:
        ValueError: several text properties, of which none has a usual name; or each of many
            objects has its own name.
    """
    contents = (collection(file) for file in files if is_geojson(file))
    total, values = 0, dict[str, set[str | int]]()
    for feature in (one for content in contents for one in content.features):
        total += 1
        for key, value in feature.properties.items():
            if is_name(value):
                values.setdefault(key, set()).add(value)
    usual = [key for name in CLASS for key in values if key.lower() == name]
    texts = [key for key, some in values.items() if any(isinstance(x, str) for x in some)]
    if not (found := usual[:1] or texts):
        report.note('set of objects without a text property (all are of one class)', source.name)
        return None
    if len(found) > 1:
        raise ValueError(
            f'{source}: which property is the class, of {", ".join(found)}? Call it "class"'
        )
    key = found[0]
    if key.lower() not in CLASS[:-1] and len(values[key]) == total > MANY:
        raise ValueError(
            f'{source}: {key!r} has another text for each of {total} objects, so it is no class: '
            'give them a property "class"'
        )
    report.note(f'set of objects whose property {key!r} is their class', source.name)
    return key


def place(content: Collection, images: Sequence[GeoImage], report: Report) -> Inside:
    """The objects of each image.

    Without a system in the file, coordinates are in degrees, as RFC 7946 has them; those that
    cannot be, or are in no image, are in the system of the images.
    """
    features = [one for one in content.features if one.polygons]
    if not features or not images:
        return {}
    if content.crs:
        return overlapping(features, content.crs, images)
    corners = np.concatenate([rings[0] for one in features for rings in one.polygons])
    in_degrees = (np.abs(corners) <= (180, 90)).all()
    if in_degrees and (inside := overlapping(features, CRS.from_epsg(4326), images)):
        return inside
    if inside := overlapping(features, None, images):
        system = images[0].crs.to_string() if images[0].crs else 'not known'
        kind = f'file that is not in degrees (taken as the system of its images, {system})'
        report.note(kind, content.file.name)
    return inside


def geo_images(files: Sequence[Path], inventory: Inventory) -> list[GeoImage]:
    """The images that are georeferenced."""
    found = (geo_image(file, inventory.files.get(str(file), ())) for file in files)
    return [image for image in found if image is not None]


FILES = Kind(
    'GeoJSON',
    'a GeoJSON file',
    ('.geojson', '.json'),
    'annotations?|labels?|geojsons?|jsons?|vectors?|polygons?',
    is_one=is_geojson,
)
GEOJSON = Format('geojson', 'GeoJSON', FILES.suffixes, find_geojson, read_geojson)
