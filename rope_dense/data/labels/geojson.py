"""GeoJSON (RFC 7946) over georeferenced images: polygons on a map as outlines in pixels.

A file is of the image of its name; where no file is, each object is of all images that it overlaps.
Coordinates are longitude and latitude, or in the system that the older member `crs` names. What
``predict-large`` writes is read back.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
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
from .shared_files import SharedFiles, label_files

if find_spec('rasterio') and find_spec('shapely'):
    import rasterio
    import shapely
    from rasterio.crs import CRS
    from rasterio.errors import CRSError, NotGeoreferencedWarning, RasterioIOError
    from rasterio.warp import transform, transform_bounds
    from shapely.errors import ShapelyError
    from shapely.geometry import shape as shapely_shape

CLASS = (
    'class',
    'label',
    'class_name',
    'category',
    'name',
)  # properties; the first is taken
ONE_CLASS = 'object'  # its name where no property and no classes.txt names it
MARGIN = 4  # times the sides of an image around it: corners farther away may have no place there


def find_geojson(inventory: Inventory) -> LabelFolder | None:
    """A file for each image, or files of many images."""
    root, shared = inventory.root, SharedFiles(FILES, inventory)
    suffix = '.geojson' if inventory.paths(root, ('.geojson',)) else '.json'
    files = [
        Path(x) for x in files_with_labels(inventory.paths(root, (suffix,)), FILES)
    ]
    if not files or not shared.images.by_path:
        return None
    if not (find_spec('rasterio') and find_spec('shapely')):
        raise ValueError(
            f'{files[0]} is placed by rasterio and shapely: install the extra "large" and mmdet'
        )
    labelled: dict[Path, list[Path]] = {}
    for file, images, is_named in images_for(files, shared):
        placed = () if is_named else place_objects(file, images, inventory, Report())
        labelled[file] = (
            images if is_named else [one.file for one, objects in placed if objects]
        )
    if not any(labelled.values()):
        features, *_ = inventory.content(files[0], read_features)
        if features and (problem := features[0].problem):
            raise ValueError(
                f'{files[0]}: {problem}, as the first: only polygons are read'
            )
        raise ValueError(
            f'{files[0]}: none of its objects is in an image of {root}: are the images '
            'georeferenced (GeoTIFF), and is the coordinate system of the file right?'
        )
    parts, by = shared.split(labelled)
    # Headers do not have the georeferences, so what is kept of an earlier start depends on this.
    found = read_geo_images(
        [image for some in labelled.values() for image in some], inventory
    )
    options = dict(georeferences=[(str(one.crs), one.to_map.tolist()) for one in found])
    return LabelFolder(
        GEOJSON, {x: replace(one, options=options) for x, one in parts.items()}, by
    )


def read_geojson(part: Split, classes: Sequence[str] | None, report: Report) -> Read:
    """Images with a file of their name, which may have no object; else those with objects.

    Objects have one class, `classes` or ``ONE_CLASS``, if they have no text property.
    """
    files, inventory = label_files(part, FILES.suffixes), part.inventory

    def items() -> Iterator[Labelled]:
        found: dict[Path, Labelled] = {}
        key = class_property(filter(is_geojson, files), part, report)
        only = classes[0] if classes and len(classes) == 1 else ONE_CLASS
        for file, images, is_named in images_for(files, SharedFiles(FILES, inventory)):
            if is_named and not part.takes(images[0]):
                continue
            features, *_ = inventory.content(file, read_features)
            labels = list[str]()
            for one in features:
                if not is_name(label := one.properties.get(key) if key else only):
                    where = f'{file.parent}/{one.where}'
                    raise ValueError(
                        f'{where}: its property {key!r}, the class, is {label!r:.80}'
                    )
                labels.append(class_name(label))
            seen = set[int]()
            if (
                not (placed := place_objects(file, images, inventory, report))
                and is_named
            ):
                raise ValueError(
                    f'{images[0]} is not georeferenced: {file} needs a GeoTIFF'
                )
            for image, objects in placed:
                seen.update(number for number, *_ in objects)
                if not (is_named or objects) or not part.takes(image.file):
                    continue
                item = found.setdefault(
                    image.file, Labelled(image.file, size=image.size)
                )
                for number, outline, box, is_cut in objects:
                    where = features[number].where
                    item.shapes.append(Shape(labels[number], box, outline, where=where))
                    if is_cut:
                        report.note(
                            'object partly outside of its image (clipped)', where
                        )
            hint = (
                '' if seen else ', as all of its file: is the coordinate system right?'
            )
            for number, one in enumerate(features):
                if is_named and number not in seen:
                    why = one.problem or f'object outside of its image{hint}'
                    found[images[0]].leave_out(why, one.where, labels[number])
                elif number not in seen and (why := files[file]):
                    why = 'object that is in no image' if images else why
                    report.leave_out(one.problem or why, one.where)
        yield from found.values()
        for note in part.files.notes:
            report.note(*note)

    return classes or (), items()


def images_for(
    files: Iterable[Path], shared: SharedFiles
) -> Iterator[tuple[Path, list[Path], bool]]:
    """The image that has the name of a file, and True; if no file has one, all it may be of."""
    texts, images = (
        map(str, filter(is_geojson, files)),
        map(str, shared.images.by_path.values()),
    )
    pairs = pair_files(FILES, shared.images.folder, images, texts)
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
    with path.open(
        'rb'
    ) as file:  # of large files of other formats only the start is read
        start = file.read(4096)
        return (
            b'"feature' in start.lower()
            and b'"FeatureCollection"' in start + file.read()
        )


class Feature(NamedTuple):
    """An object on a map, by its place in a file; without a polygon because of a problem."""

    where: str
    properties: Mapping[str, Any]
    polygon: shapely.MultiPolygon
    problem: str


def read_features(path: Path) -> tuple[list[Feature], shapely.STRtree, CRS | None]:
    """The objects of a file, a tree of their polygons, and the coordinate system if it says one.

    Raises:
        ValueError: no FeatureCollection, or a broken feature; the message has its number.
    """
    features = list[Feature]()
    with errors_at(path):
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
            with errors_at(where := f'{path.name}, feature {number}'):
                if not isinstance(one, dict):
                    raise ValueError(f'it is {one!r:.80}, which is no Feature')
                properties = {**(one.get('properties') or {})}
                features.append(
                    Feature(where, properties, *polygon_of(one.get('geometry') or {}))
                )
    return features, shapely.STRtree([one.polygon for one in features]), crs


def polygon_of(geometry: Mapping[str, Any]) -> tuple[shapely.MultiPolygon, str]:
    """The polygons of a geometry, which do not cross, and the problem if there is none."""
    kind, given = geometry.get('type'), geometry.get('coordinates') or []
    if kind not in ('Polygon', 'MultiPolygon'):
        problem = f'object of type {kind}' if kind else 'object without a geometry'
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


def class_property(files: Iterable[Path], part: Split, report: Report) -> str | None:
    """The property with the class of each object; None if there is neither one nor another text.

    Raises:
        ValueError: several text properties, of which none has a usual name.
    """
    types: dict[str, set[type]] = {}
    for feature in (
        one for x in files for one in part.inventory.content(x, read_features)[0]
    ):
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


class GeoImage(NamedTuple):
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
    return None if np.array_equal(to_map, np.eye(3)) else found


def read_geo_images(files: Iterable[Path], inventory: Inventory) -> list[GeoImage]:
    """The images that are georeferenced."""
    found = (read_geo_image(file, inventory.files.get(str(file), ())) for file in files)
    return [image for image in found if image is not None]


# Number of an object in its file, its outline, its box in the image, and whether that is clipped.
Placed = tuple[int, list[list[float]], Box, bool]


def place_objects(
    file: Path, images: Iterable[Path], inventory: Inventory, report: Report
) -> list[tuple[GeoImage, list[Placed]]]:
    """The georeferenced images, each with its objects.

    Without a system in the file, coordinates are in degrees, as RFC 7946 has them; where these are
    in no image, they are in the system of the images.
    """
    _, tree, said = inventory.content(file, read_features)
    placed = list[tuple[GeoImage, list[Placed]]]()
    for crs in [said] if said else [CRS.from_epsg(4326), None]:
        placed = [
            (one, placed_in(one, tree, crs))
            for one in read_geo_images(images, inventory)
        ]
        if any(objects for _, objects in placed):
            if crs is None:
                system = f'taken as the system of its images, {placed[0][0].crs or "not known"}'
                report.note(f'file that is not in degrees ({system})', file.name)
            break
    return placed


def placed_in(image: GeoImage, tree: shapely.STRtree, crs: CRS | None) -> list[Placed]:
    """The objects that cover a pixel of an image; `crs` is None for the system of the image."""
    (height, width), to_pixels = image.size, np.linalg.inv(image.to_map)
    corners = image.to_map[:2] @ [
        [0, width, 0, width],
        [0, 0, height, height],
        [1, 1, 1, 1],
    ]
    (left, bottom), (right, top) = corners.min(1), corners.max(1)
    is_other = None not in (crs, image.crs) and crs != image.crs

    def in_pixels(points: np.ndarray) -> np.ndarray:  # [n, 2]
        x, y = transform(crs, image.crs, *points.T) if is_other else points.T
        return (np.stack([x, y, np.ones(len(points))], 1) @ to_pixels.T)[:, :2]

    try:
        if is_other:
            left, bottom, right, top = transform_bounds(
                image.crs, crs, left, bottom, right, top
            )
        areas = np.array([[left, bottom, right, top]])
        if left > right:  # it is on both sides of the date line
            areas = np.array([[left, bottom, 180, top], [-180, bottom, right, top]])
        near = np.unique(tree.query(shapely.box(*areas.T))[1])
        low, high = areas.min(0)[:2], areas.max(0)[2:]
        margin = MARGIN * (high - low)
        around = shapely.clip_by_rect(
            tree.geometries[near], *(low - margin), *(high + margin)
        )
        polygons = shapely.transform(around, in_pixels)
    except (
        Exception
    ):  # GDAL's, which has no public class, where a system is not of this place
        return []
    parts = shapely.clip_by_rect(polygons, 0, 0, width, height)
    ends = shapely.bounds(parts)
    is_cut = ~(np.abs(ends - shapely.bounds(polygons)).max(1, initial=0) <= 0.01)
    return [
        (
            int(near[n]),
            pixel_polygons(polygons[n]),
            bounding_box(ends[n]),
            bool(is_cut[n]),
        )
        for n in np.flatnonzero(~is_cut | (shapely.area(parts) >= 1))
    ]


def pixel_polygons(polygon: shapely.Geometry) -> list[list[float]]:
    """The polygons of an object in pixels; a line leads into each hole, and back."""
    outline = []
    for one in shapely.get_parts(polygon):
        outer, *holes = map(shapely.get_coordinates, (one.exterior, *one.interiors))
        path = [outer, *(points for hole in holes for points in (hole, outer[:1]))]
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
