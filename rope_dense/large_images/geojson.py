"""Objects of an image on a map, as GeoJSON (RFC 7946)."""

import json
from importlib.util import find_spec

import numpy as np

from .image_file import LargeImage

if find_spec('rasterio'):
    from rasterio.warp import transform

WGS84 = 'EPSG:4326'  # longitude and latitude, the one system of GeoJSON


def is_on_map(image: LargeImage) -> bool:
    """Return whether an image has a transform and a coordinate system."""
    return bool(image.file.crs) and not image.file.transform.is_identity


def geojson_text(content: dict, image: LargeImage) -> str:
    """The boxes, or corners if `segmentation` is a polygon, as polygons on the map."""
    names = {category['id']: category['name'] for category in content['categories']}
    features = [
        dict(
            type='Feature',
            geometry=dict(type='Polygon', coordinates=[on_map(four_corners(item), image)]),
            properties={'class': names[item['category_id']], 'score': item['score']},
        )
        for item in content['annotations']
    ]
    return json.dumps(dict(type='FeatureCollection', features=features)) + '\n'


def four_corners(annotation: dict) -> np.ndarray:
    """The corners [4, 2] of the box of an annotation, in pixels."""
    if 'rbox' in annotation and (outline := annotation.get('segmentation')):
        return np.reshape(outline[0], (4, 2))
    left, top, width, height = annotation['bbox']
    right, bottom = left + width, top + height
    return np.array([[left, top], [right, top], [right, bottom], [left, bottom]])


def on_map(corners: np.ndarray, image: LargeImage) -> list[list[float]]:
    """A closed ring [longitude, latitude], counter-clockwise, of corners [4, 2] in pixels."""
    to_map = np.reshape(image.file.transform[:6], (2, 3))
    x, y = to_map[:, :2] @ corners.T + to_map[:, 2:]
    longitudes, latitudes = transform(image.file.crs, WGS84, x.tolist(), y.tolist())
    ring = np.stack([longitudes, latitudes], 1)
    following = np.roll(ring, -1, 0)
    doubled_area = (ring[:, 0] * following[:, 1] - following[:, 0] * ring[:, 1]).sum()
    ring = ring if doubled_area > 0 else ring[::-1]
    return [*ring.tolist(), ring[0].tolist()]
