"""GeoJSON (RFC 7946) over georeferenced images: polygons on a map as outlines in pixels.

A file is of the image of its name; where no file is, each object is of all images that it overlaps.
Coordinates are longitude and latitude, or in the system that the older member `crs` names. What
``predict-large`` writes is read back.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .files import class_name, errors_at, read_json
from .geometry import bounding_box
from .inventory import Inventory, State
from .label_folder import Format, LabelFolder, Read, Split
from .objects import Box, Labelled, Report, Shape
from .pairs import files_with_labels, pair_files
from .places import FileKind
from .shared_files import GROUPS, SharedFiles, label_files

if find_spec('rasterio') and find_spec('shapely'):
    import rasterio
    import shapely
    from rasterio.crs import CRS
    from rasterio.errors import CRSError, NotGeoreferencedWarning, RasterioIOError
    from rasterio.warp import transform, transform_bounds
    from shapely.errors import ShapelyError
    from shapely.geometry import shape as shapely_shape

# Properties; the first is taken.
CLASS = ('class', 'label', 'class_name', 'category', 'name')
AT_BORDER = 'object partly outside of its image'
FEW_NAMES = 8  # values of `name`: more, for less than twice the objects, are no classes
ONE_CLASS = 'object'  # its name where no property and no classes.txt names it
MARGIN = 4  # times the sides of an image around it: corners farther away may have no place there


def find_geojson(inventory: Inventory) -> LabelFolder | None:
    """A file for each image, or files of many images."""
    root = inventory.root
    shared = SharedFiles(FILES, inventory)
    suffix = '.json'
    if inventory.paths(root, ('.geojson',)):
        suffix = '.geojson'
    paths = inventory.paths(root, (suffix,))
    files = [*map(Path, files_with_labels(paths, FILES))]
    if not files or not shared.images.by_path:
        return None
    if not (find_spec('rasterio') and find_spec('shapely')):
        raise ValueError(
            f'{files[0]} is placed by rasterio and shapely: install the extra "large" and mmdet'
        )
    labelled = {}
    for file, given, is_named in images_for(files, shared):
        images = given.files
        if not is_named:
            placed = place_objects(file, given, inventory, Report())
            images = [one.file for one, objects in placed if objects]
        labelled[file] = images
    if not any(labelled.values()):
        features = inventory.content(files[0], read_features).features
        problem = ''
        if features:
            problem = features[0].problem
        if problem:
            raise ValueError(
                f'{files[0]}: {problem}, as the first: only polygons are read'
            )
        raise ValueError(
            f'{files[0]}: none of its objects is in an image of {root}: are the images '
            'georeferenced (GeoTIFF), and is the coordinate system of the file right?'
        )
    parts, by = shared.split(labelled)
    # Headers do not have the georeferences, so what is kept of an earlier start depends on this.
    found = read_geo_images(chain(*labelled.values()), inventory)
    options = dict(georeferences=[(str(one.crs), one.to_map.tolist()) for one in found])
    for split, part in parts.items():
        parts[split] = replace(part, options=options)
    return LabelFolder(GEOJSON, parts, by)


def read_geojson(part: Split, classes: Sequence[str] | None, report: Report) -> Read:
    """Images with a file of their name, which may have no object; else those with objects.

    Objects have one class, `classes` or ``ONE_CLASS``, if they have no text property.
    """
    files = label_files(part, FILES.suffixes)
    inventory = part.inventory

    def items() -> Iterator[Labelled]:
        found: dict[Path, Labelled] = {}
        key = class_property(filter(is_geojson, files), part, report)
        only = class_name(classes[0] if classes and len(classes) == 1 else ONE_CLASS)
        for file, images, is_named in images_for(files, SharedFiles(FILES, inventory)):
            if is_named and not part.takes(images.files[0]):
                continue
            features = inventory.content(file, read_features).features
            labels = [only] * len(features)
            if key:
                labels = [label_of(feature, key, file) for feature in features]
            placed = place_objects(file, images, inventory, report)
            if is_named and not placed:
                raise ValueError(
                    f'{images.files[0]} is not georeferenced: {file} needs a GeoTIFF'
                )
            seen = set[int]()
            for image, objects in placed:
                seen.update(one.number for one in objects)
                if not (is_named or objects) or not part.takes(image.file):
                    continue
                item = Labelled(image.file, size=image.size)
                item = found.setdefault(image.file, item)
                for one in objects:
                    label = labels[one.number]
                    where = features[one.number].where
                    item.shapes.append(Shape(label, one.box, one.outline, where=where))
                    if one.is_cut:
                        report.note(AT_BORDER, where)
            hint = ''
            if not seen:
                hint = ', as all of its file: is the coordinate system right?'
            for number, feature in enumerate(features):
                if number in seen:
                    continue
                if is_named:
                    why = feature.problem or f'object outside of its image{hint}'
                    found[images.files[0]].leave_out(why, feature.where, labels[number])
                elif files[file]:
                    why = 'object that is in no image' if images.files else files[file]
                    report.leave_out(feature.problem or why, feature.where)
        yield from found.values()
        for note in part.files.notes:
            report.note(*note)

    return classes or (), items()


def images_for(
    files: Iterable[Path],
    shared: SharedFiles,
) -> Iterator[tuple[Path, GeoImages, bool]]:
    """The image that has the name of a file, and True; if no file has one, all it may be of."""
    texts = map(str, filter(is_geojson, files))
    images = map(str, shared.images.by_path.values())
    pairs = pair_files(FILES, shared.images.folder, images, texts)
    groups: dict[str, GeoImages] = {}
    for path in pairs.files:
        file = Path(path)
        if path in pairs.image_of:
            own = [Path(pairs.image_of[path])]
            yield file, GeoImages(own, shared.inventory), True
            continue
        group = GROUPS[shared.split_of(file)]
        if group not in groups:
            every = () if pairs.image_of else shared.images_for(file).by_path.values()
            groups[group] = GeoImages([*every], shared.inventory)
        yield file, groups[group], False


def is_geojson(path: Path) -> bool:
    """Return whether a file has a FeatureCollection, or the suffix .geojson."""
    if path.suffix.lower() == '.geojson':
        return True
    # Of large files of other formats only the start is read.
    with path.open('rb') as file:
        start = file.read(4096)
        is_likely = b'"feature' in start.lower()
        return is_likely and b'"FeatureCollection"' in start + file.read()


class Feature(NamedTuple):
    """An object on a map, by its place in a file; without a polygon because of a problem."""

    where: str
    properties: Mapping[str, Any]
    polygon: shapely.MultiPolygon
    problem: str


class FeatureFile(NamedTuple):
    """The objects of a file, a tree of their polygons, and the system if the file says one."""

    features: list[Feature]
    tree: shapely.STRtree
    crs: CRS | None


def read_features(path: Path) -> FeatureFile:
    """The objects of a file.

    Raises:
        ValueError: no FeatureCollection, or a broken feature; the message has its number.
    """
    features = []
    with errors_at(path):
        content = read_json(path)
        given = content.get('features') if isinstance(content, dict) else None
        if not isinstance(given, list) or content.get('type') != 'FeatureCollection':
            raise ValueError('no FeatureCollection of GeoJSON')
        crs = content.get('crs')
        try:
            crs = CRS.from_user_input(crs['properties']['name']) if crs else None
        except (KeyError, TypeError, CRSError):
            raise ValueError(f'its crs is {crs!r:.80}, which is not known') from None
        for number, one in enumerate(given, start=1):
            where = f'{path.name}, feature {number}'
            with errors_at(where):
                if not isinstance(one, dict):
                    raise ValueError(f'it is {one!r:.80}, which is no Feature')
                properties = {**(one.get('properties') or {})}
                polygon, problem = polygon_of(one.get('geometry') or {})
                features.append(Feature(where, properties, polygon, problem))
    tree = shapely.STRtree([one.polygon for one in features])
    return FeatureFile(features, tree, crs)


def polygon_of(geometry: Mapping[str, Any]) -> tuple[shapely.MultiPolygon, str]:
    """The polygons of a geometry, which do not cross, and the problem if there is none."""
    kind = geometry.get('type')
    given = geometry.get('coordinates') or []
    if kind not in ('Polygon', 'MultiPolygon'):
        problem = 'object without a geometry'
        if kind:
            problem = f'object of type {kind}'
        return shapely.MultiPolygon(), problem
    try:
        found = shapely.force_2d(shapely_shape(dict(type=kind, coordinates=given)))
        parts = shapely.get_parts(shapely.get_parts(shapely.make_valid(found)))
    except (ValueError, TypeError, LookupError, OverflowError, ShapelyError) as error:
        raise ValueError(
            f'its coordinates are {given!r:.80}, no {kind} ({error})'
        ) from None
    polygon = shapely.MultiPolygon([one for one in parts if one.geom_type == 'Polygon'])
    return polygon, 'polygon without an area' if polygon.is_empty else ''


def is_name(value: Any) -> bool:
    """Return whether a property may name a class: a text, or a whole number."""
    return bool(str(value).strip()) and type(value) in (str, int)


def label_of(feature: Feature, key: str, file: Path) -> str:
    """The class of an object, by a property; ValueError if it names none."""
    label = feature.properties.get(key)
    if not is_name(label):
        raise ValueError(
            f'{file.parent}/{feature.where}: its property {key!r}, the class, is {label!r:.80}'
        )
    return class_name(label)


def class_property(files: Iterable[Path], part: Split, report: Report) -> str | None:
    """The property with the class of each object; None if there is neither one nor another text.

    Raises:
        ValueError: several text properties, of which none has a usual name; or names of objects,
            as OpenStreetMap has them, which are no classes.
    """
    number = 0
    values = defaultdict(set)
    for file in files:
        for feature in part.inventory.content(file, read_features).features:
            number += 1
            for key, value in feature.properties.items():
                if is_name(value):
                    values[key].add(value)
    usual = [key for name in CLASS for key in values if key.lower() == name]
    found = usual[:1]
    for key in () if usual else values:
        if str in map(type, values[key]):
            found.append(key)
    if len(found) > 1:
        raise ValueError(
            f'{part.source}: which property is the class, of {", ".join(found)}? Call it "class"'
        )
    for key in found:
        several = len(values[key])
        if key.lower() == 'name' and several > max(FEW_NAMES, number / 2):
            raise ValueError(
                f'{part.source}: {number} objects have {several} different values of {key!r}, '
                'which is no class: call the property with the class "class"'
            )
    kind = 'without a text property (all are of one class)'
    if found:
        kind = f'whose property {found[0]!r} is their class'
    report.note(f'set of objects {kind}', part.source.name)
    if found:
        return found[0]
    return None


@dataclass(frozen=True, eq=False)
class GeoImage:
    """An image on a map."""

    file: Path
    size: tuple[int, int]  # (height, width)
    crs: CRS | None  # None if only the transform is known, as from a world file
    to_map: np.ndarray  # [3, 3], from pixels (x, y, 1)


@lru_cache(None)
def read_geo_image(file: Path, state: State) -> GeoImage | None:
    """An image on a map, in this state of its file; None for one without a transform to a map."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore', NotGeoreferencedWarning)
            with rasterio.open(file) as image:
                to_map = np.reshape(image.transform[:9], (3, 3))
                found = GeoImage(file, image.shape, image.crs, to_map)
    except RasterioIOError:
        return None
    if np.array_equal(to_map, np.eye(3)):
        return None
    return found


def read_geo_images(files: Iterable[Path], inventory: Inventory) -> list[GeoImage]:
    """The images that are georeferenced."""
    found = [read_geo_image(file, inventory.files.get(str(file), ())) for file in files]
    return [*filter(None, found)]


class GeoImages:
    """The images that a file may be of; their bounds are kept for the next file."""

    def __init__(self, files: Sequence[Path], inventory: Inventory) -> None:
        self.files = files
        self.found = read_geo_images(files, inventory)
        self.boxes = dict[str, Any]()  # around them, by systems

    def near(self, tree: shapely.STRtree, crs: CRS | None) -> list[GeoImage]:
        """The images that may have an object."""
        name = str(crs)
        if name not in self.boxes:
            bounds = np.zeros((len(self.found), 4))
            for row, image in zip(bounds, self.found, strict=True):
                with suppress(Exception):  # GDAL's, of a system of another place
                    row[:] = bounds_on_map(image, crs)
            is_split = bounds[:, 0] > bounds[:, 2]  # by the date line
            bounds[is_split, ::2] = -180, 180
            self.boxes[name] = shapely.box(*bounds.T)
        return [self.found[n] for n in np.unique(tree.query(self.boxes[name])[0])]


class Placed(NamedTuple):
    """An object in an image."""

    number: int  # in its file
    outline: list[list[float]]
    box: Box
    is_cut: bool  # at the border of the image


def place_objects(
    file: Path,
    images: GeoImages,
    inventory: Inventory,
    report: Report,
) -> list[tuple[GeoImage, list[Placed]]]:
    """The georeferenced images near objects, or the only one, each with its objects.

    Without a system in the file, coordinates are in degrees, as RFC 7946 has them; where these are
    in no image, they are in the system of the images.
    """
    given = inventory.content(file, read_features)
    found = images.found
    for crs in [given.crs] if given.crs else [CRS.from_epsg(4326), None]:
        near = found if len(found) == 1 else images.near(given.tree, crs)
        placed = [(image, placed_in(image, given.tree, crs)) for image in near]
        if any(objects for _, objects in placed):
            if crs is None:
                system = found[0].crs or 'not known'
                kind = f'file that is not in degrees (taken as the system of its images, {system})'
                report.note(kind, file.name)
            break
    return placed


def is_other_system(image: GeoImage, crs: CRS | None) -> bool:
    """Return whether a system is not the one of an image, and both are known."""
    return None not in (crs, image.crs) and crs != image.crs


@lru_cache(None)
def bounds_on_map(image: GeoImage, crs: CRS | None) -> tuple[float, ...]:
    """Left, bottom, right and top of an image; left is above right over the date line."""
    height, width = image.size
    ends = [[0, width, 0, width], [0, 0, height, height], [1, 1, 1, 1]]
    corners = image.to_map[:2] @ ends
    bounds = (*corners.min(1), *corners.max(1))
    if is_other_system(image, crs):
        return transform_bounds(image.crs, crs, *bounds)
    return bounds


def placed_in(image: GeoImage, tree: shapely.STRtree, crs: CRS | None) -> list[Placed]:
    """The objects that cover a pixel of an image; `crs` is None for the system of the image."""
    height, width = image.size
    to_pixels = np.linalg.inv(image.to_map)
    is_other = is_other_system(image, crs)

    def in_pixels(points: np.ndarray) -> np.ndarray:  # [n, 2]
        x, y = transform(crs, image.crs, *points.T) if is_other else points.T
        on_map = np.stack([x, y, np.ones(len(points))], 1)
        return (on_map @ to_pixels.T)[:, :2]

    try:
        left, bottom, right, top = bounds_on_map(image, crs)
        areas = np.array([[left, bottom, right, top]])
        if left > right:  # it is on both sides of the date line
            areas = np.array([[left, bottom, 180, top], [-180, bottom, right, top]])
        near = np.unique(tree.query(shapely.box(*areas.T))[1])
        low = areas.min(0)[:2]
        high = areas.max(0)[2:]
        margin = MARGIN * (high - low)
        around = shapely.clip_by_rect(
            tree.geometries[near], *(low - margin), *(high + margin)
        )
        polygons = shapely.transform(around, in_pixels)
    except Exception:  # GDAL's, without a public class, of a system of another place
        return []
    parts = shapely.clip_by_rect(polygons, 0, 0, width, height)
    bounds = shapely.bounds(parts)
    farthest = np.abs(bounds - shapely.bounds(polygons)).max(1, initial=0)
    is_cut = ~(farthest <= 0.01)  # also for NaN
    placed = []
    for n in np.flatnonzero(~is_cut | (shapely.area(parts) >= 1)):
        outline = pixel_polygons(polygons[n])
        box = bounding_box(bounds[n])
        placed.append(Placed(int(near[n]), outline, box, bool(is_cut[n])))
    return placed


def pixel_polygons(polygon: shapely.Geometry) -> list[list[float]]:
    """The polygons of an object in pixels; a line leads into each hole, and back."""
    outline = []
    for one in shapely.get_parts(polygon):
        outer = shapely.get_coordinates(one.exterior)
        path = [outer]
        for hole in one.interiors:
            path += [shapely.get_coordinates(hole), outer[:1]]
        outline.append(np.concatenate(path)[:-1].ravel().tolist())
    return outline


WORDS = 'annotations?|labels?|geojsons?|jsons?|vectors?|polygons?'
FILES = FileKind(
    'GeoJSON', 'an object', ('.geojson', '.json'), WORDS, is_one=is_geojson
)
GEOJSON = Format(
    'geojson',
    'GeoJSON',
    FILES.suffixes,
    find_geojson,
    read_geojson,
    shared=FILES,
    lists_classes=False,
)
