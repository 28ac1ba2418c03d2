"""GeoJSON over georeferenced images: outlines in pixels by hand, and the line that is said else."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from pycocotools import mask as coco_mask
from rasterio import Affine
from rasterio.features import rasterize
from rasterio.warp import transform
from shapely.geometry import Polygon, box

from helpers.field import image, objects_in, reading, refusal, write
from rope_dense.data.convert_data import convert_data
from rope_dense.data.labels import geojson
from rope_dense.data.tiles.image_file import LargeImage, geojson_text

UTM = 'EPSG:32633'
SIZE = (30, 40)  # height, width
TO_MAP = Affine(0.5, 0, 500_000, 0, -0.5, 5_000_000)
ROTATED = (
    Affine.translation(500_000, 5_000_000)
    * Affine.rotation(30)
    * Affine.scale(0.5, -0.5)
)
MIRRORED = Affine(-0.5, 0, 500_000, 0, 0.5, 5_000_000)
SQUARE = [[10, 5], [30, 5], [30, 15], [10, 15]]
CAT = ('cat', (10, 5, 20, 10), 0)


def tif(path: Path, to_map: Affine = TO_MAP, crs: str | None = UTM) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    profile = dict(
        driver='GTiff', dtype='uint8', count=3, height=SIZE[0], width=SIZE[1]
    )
    with rasterio.open(path, 'w', **profile, crs=crs, transform=to_map) as file:
        file.write(np.full((3, *SIZE), hash(path.name) % 255, np.uint8))
    return path


def on_map(
    pixels: Sequence, crs: str | None = 'EPSG:4326', to_map: Affine = TO_MAP
) -> list[list[float]]:
    """A closed ring in a coordinate system, None for the one of the images."""
    x, y = zip(*(to_map * pair for pair in [*pixels, pixels[0]]), strict=True)
    x, y = transform(UTM, crs, x, y) if crs else (x, y)
    return [[*pair] for pair in zip(x, y, strict=True)]


def feature(geometry: Any, **properties: Any) -> dict:
    if isinstance(geometry, list):
        geometry = dict(type='Polygon', coordinates=geometry)
    return dict(
        type='Feature', geometry=geometry, properties=properties or {'class': 'cat'}
    )


def collection(*features: Any, crs: str | None = None, **more: Any) -> str:
    if crs:
        more['crs'] = dict(type='name', properties=dict(name=crs))
    return json.dumps(dict(type='FeatureCollection', **more, features=features))


def pairs(root: Path, *features: Any, to_map: Affine = TO_MAP, **more: Any) -> Path:
    """A training image with these objects, beside a validation image with a cat."""
    for split, some in (('train', features), ('val', [feature([on_map(SQUARE)])])):
        tif(root / split / 'images' / 'a.tif', to_map if split == 'train' else TO_MAP)
        write(
            root / split / 'labels' / 'a.geojson',
            collection(*some, **more if some is features else {}),
        )
    return root


def tiles(root: Path, folder: str = '', count: int = 20) -> list[Affine]:
    """Images beside each other, from left to right."""
    found = [TO_MAP * Affine.translation(n * SIZE[1], 0) for n in range(count)]
    for n, to_map in enumerate(found):
        tif(root / folder / f'{n}.tif', to_map)
    return found


def mask_of(annotation: dict) -> np.ndarray:
    return coco_mask.decode(
        coco_mask.merge(coco_mask.frPyObjects(annotation['segmentation'], *SIZE))
    )


@pytest.mark.parametrize(
    'to_map', [TO_MAP, ROTATED, MIRRORED], ids=['north', 'rotated', 'south']
)
@pytest.mark.parametrize(
    'crs, declared',
    [
        ('EPSG:4326', None),
        ('EPSG:4326', 'urn:ogc:def:crs:OGC:1.3:CRS84'),
        ('EPSG:3857', 'urn:ogc:def:crs:EPSG::3857'),
        ('EPSG:32632', 'EPSG:32632'),
        (UTM, 'EPSG:32633'),
    ],
)
def test_systems_and_transforms(
    tmp_path: Path, crs: str, declared: str | None, to_map: Affine
) -> None:
    ring = on_map(SQUARE, crs, to_map)
    root = pairs(tmp_path / 'a', feature([ring]), crs=declared, to_map=to_map)
    found = reading(root)
    assert found.objects['train'] == {'train/images/a.tif': [CAT]}
    outline = np.reshape(
        found.content['train']['annotations'][0]['segmentation'][0], (-1, 2)
    )
    assert np.abs(outline - SQUARE).max() < 0.01
    assert "set of objects whose property 'class' is their class" in found.text


def test_coordinates_of_the_images_without_crs(tmp_path: Path) -> None:
    found = reading(pairs(tmp_path / 'a', feature([on_map(SQUARE, None)])))
    assert [*found.objects['train'].values()] == [[CAT]]
    assert (
        f'not in degrees (taken as the system of its images, {UTM}): a.geojson'
        in found.text
    )


def test_small_coordinates_that_are_in_no_image_as_degrees(tmp_path: Path) -> None:
    root, to_map = tmp_path / 'a', Affine(0.5, 0, 10, 0, -0.5, 50)
    for split in ('train', 'val'):
        tif(root / split / 'a.tif', to_map)
        text = collection(feature([on_map(SQUARE, None, to_map)]))
        write(root / split / 'a.geojson', text)
    found = reading(root)
    assert [*found.objects['train'].values()] == [
        [CAT]
    ] and 'not in degrees' in found.text


def test_holes_and_parts(tmp_path: Path) -> None:
    """Pixels as rasterio's rasterize has them."""
    hole, other = (
        [[14, 7], [14, 12], [20, 12], [20, 7]],
        [[22, 8], [26, 8], [26, 13], [22, 13]],
    )
    for turned in (hole, hole[::-1]):
        rings = [on_map(SQUARE), on_map(turned), on_map(other)]
        second = [on_map([[33, 20], [38, 20], [38, 28], [33, 28]])]
        multi = dict(type='MultiPolygon', coordinates=[rings, second])
        root = tmp_path / f'{turned is hole}'
        found = reading(
            pairs(root, feature(multi), feature([on_map(SQUARE)])), outlines=True
        )
        item, plain = found.content['train']['annotations']
        shapes = [Polygon(SQUARE, [hole, other]), box(33, 20, 38, 28)]
        expected = rasterize(shapes, SIZE)
        assert (mask_of(item) == expected).all() and item[
            'area'
        ] == expected.sum() == 190
        assert (
            item['bbox'] == pytest.approx([10, 5, 28, 23], abs=0.01)
            and plain['area'] == 200
        )


def test_oriented_boxes(tmp_path: Path) -> None:
    diamond = [[20, 5], [30, 15], [20, 25], [10, 15]]
    beyond = [[30, 5], [45, 20], [35, 30], [20, 15]]  # its centre is within
    root = pairs(tmp_path / 'a', feature([on_map(diamond)]), feature([on_map(beyond)]))
    items = reading(root, oriented=True).content['train']['annotations']
    for item, corners in zip(items, (diamond, beyond), strict=True):
        assert item['area'] == pytest.approx(Polygon(corners).area, rel=1e-3)


@pytest.mark.parametrize('folder', ['', 'tiles'])
def test_one_file_of_many_images(tmp_path: Path, folder: str) -> None:
    """An object is in each image that it overlaps by a pixel, clipped to it, as by shapely."""
    root = tmp_path / 'a'
    tiles(root, folder)
    rng = np.random.default_rng(0)
    shapes = []
    for _ in range(60):
        centre, radius = (
            rng.uniform((0, 0), (SIZE[1] * 20, SIZE[0])),
            rng.uniform(2, 25),
        )
        angles = np.sort(rng.uniform(0, 2 * np.pi, 7))
        shapes.append(centre + radius * np.stack([np.cos(angles), np.sin(angles)], 1))
    features = [
        feature([on_map(one.tolist())], label=f'k{n % 3}')
        for n, one in enumerate(shapes)
    ]
    write(root / 'all.geojson', collection(*features))
    found = reading(root)
    images = found.objects['train'] | found.objects['val']
    checked = 0
    for n in range(20):
        tile = box(n * SIZE[1], 0, (n + 1) * SIZE[1], SIZE[0])
        expected = []
        for number, one in enumerate(shapes):
            part = Polygon(one).buffer(0).intersection(tile)
            left, top, right, bottom = part.bounds if part.area >= 1 else (0, 0, 0, 0)
            if min(right - left, bottom - top) >= 1:
                expected.append(
                    (
                        f'k{number % 3}',
                        (left - n * SIZE[1], top, right - left, bottom - top),
                    )
                )
        items = [
            x
            for name, some in images.items()
            if Path(name).name == f'{n}.tif'
            for x in some
        ]
        assert [x[0] for x in items] == [x[0] for x in expected]
        for (_, given, _), (_, true) in zip(items, expected, strict=True):
            assert (
                np.abs(np.subtract(given, true)).max() <= 1.5
            )  # boxes are of drawn pixels
            checked += 1
    assert checked > 60 and 'object partly outside of its image' in found.text


def test_files_of_splits_and_of_places(tmp_path: Path) -> None:
    root = tmp_path / 'a'
    maps = tiles(root, 'images', 4)
    rings = [on_map(SQUARE, to_map=to_map) for to_map in maps]
    write(root / 'train.geojson', collection(*(feature([x]) for x in rings[:3])))
    write(root / 'val.geojson', collection(feature([rings[3]])))
    found = reading(root)
    assert {split: len(some) for split, some in found.objects.items()} == dict(
        train=3, val=1
    )
    assert all(x == [CAT] for some in found.objects.values() for x in some.values())


def test_files_whose_names_are_not_the_names_of_the_images(tmp_path: Path) -> None:
    """SpaceNet: geojson/buildings/buildings_img1.geojson of RGB-PanSharpen_img1.tif."""
    root = tmp_path / 'a'
    for n in range(20):
        to_map = TO_MAP * Affine.translation(n * SIZE[1], 0)
        tif(root / 'RGB' / f'RGB_img{n}.tif', to_map)
        text = collection(feature([on_map(SQUARE, to_map=to_map)]))
        write(root / 'geojson' / 'buildings' / f'buildings_img{n}.geojson', text)
    found = reading(root)
    assert sum(len(some) for some in found.objects.values()) == 20
    assert all(x == [CAT] for some in found.objects.values() for x in some.values())


def test_images_without_objects(tmp_path: Path) -> None:
    """An empty file says so; no object of a file for many images does not."""
    found = reading(pairs(tmp_path / 'a'))
    assert [*found.objects['train'].values()] == [[]]
    root = tmp_path / 'b'
    maps = tiles(root)
    image(root / 'photo.jpg')
    features = [feature([on_map(SQUARE, to_map=to_map)]) for to_map in maps[1:]]
    write(
        root / 'all.json',
        collection(*features, feature([[[1, 2], [1, 3], [2, 3], [1, 2]]])),
    )
    found = reading(root)
    assert sum(len(some) for some in found.objects.values()) == 19
    assert (
        '2 x image without an object (not labelled, so left out): 0.tif, photo.jpg'
        in found.text
    )
    assert (
        '1 x object that is in no image (left out): all.json, feature 20' in found.text
    )


@pytest.mark.parametrize(
    'geometry, reason',
    [
        (dict(type='Point', coordinates=[15, 45]), 'object of type Point'),
        (
            dict(type='LineString', coordinates=[[15, 45], [16, 45]]),
            'object of type LineString',
        ),
        (None, 'object without a geometry'),
        (dict(type='Polygon', coordinates=[]), 'polygon without an area'),
        ([on_map(SQUARE[:2])], 'polygon without an area'),
        ([on_map([[50, 5], [60, 5], [60, 15]])], 'object outside of its image'),
    ],
)
def test_objects_that_are_left_out(tmp_path: Path, geometry: Any, reason: str) -> None:
    ring = on_map(SQUARE)
    found = reading(pairs(tmp_path / 'a', feature([ring]), feature(geometry)))
    assert [*found.objects['train'].values()] == [[CAT]]
    assert f'1 x {reason} (left out): a.geojson, feature 2' in found.text


@pytest.mark.parametrize(
    'properties, name, line',
    [
        ({'class': 'cat'}, 'cat', "property 'class'"),
        (dict(Label='cat', score=0.5), 'cat', "property 'Label'"),
        (dict(class_name='cat', name='Tom'), 'cat', "property 'class_name'"),
        (dict(category=3, id=7), '3', "property 'category'"),
        (dict(species='cat', height=3.5, id=4), 'cat', "property 'species'"),
        (
            dict(id=4, area=2.5),
            'object',
            'without a text property (all are of one class)',
        ),
    ],
)
def test_the_property_with_the_class(
    tmp_path: Path, properties: dict, name: str, line: str
) -> None:
    root = tmp_path / 'a'
    for split in ('train', 'val'):
        tif(root / split / 'a.tif')
        write(
            root / split / 'a.geojson',
            collection(feature([on_map(SQUARE)], **properties)),
        )
    found = reading(root)
    assert found.classes == (name,) and line in found.text


@pytest.mark.parametrize(
    'text, line',
    [
        (
            collection(feature([on_map(SQUARE)], kind='cat', colour='red')),
            'which property is the class, of kind, colour? Call it "class"',
        ),
        (
            collection(feature([on_map(SQUARE)]), feature([on_map(SQUARE)], id=1)),
            "a.geojson, feature 2: its property 'class', the class, is None",
        ),
        (
            '{"type": "FeatureCollection", "features": [',
            'a.geojson is no JSON, or cut off',
        ),
        (
            '{"type": "Feature", "geometry": null}',
            'a.geojson: no FeatureCollection of GeoJSON',
        ),
        (collection(7), 'a.geojson, feature 1: it is 7, which is no Feature'),
        (
            collection(feature([[[1, 2], ['x', 3], [4, 5]]])),
            'a.geojson, feature 1: its coordinates are [[',
        ),
        (collection(feature([on_map(SQUARE)]), crs='EPSG:0'), 'a.geojson: its crs is'),
        (
            collection(feature([on_map(SQUARE)]), crs='nonsense'),
            'a.geojson: its crs is',
        ),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str, line: str) -> None:
    root = pairs(tmp_path / 'a')
    write(root / 'train' / 'labels' / 'a.geojson', text)
    said = refusal(root)
    assert line in said and str(root) in said


def test_images_that_are_not_georeferenced(tmp_path: Path) -> None:
    root = pairs(tmp_path / 'a', feature([on_map(SQUARE)]))
    image(root / 'train' / 'images' / 'a.tif')
    assert 'train/images/a.tif is not georeferenced' in refusal(root)
    root = tmp_path / 'b'
    for n in range(3):
        image(root / f'{n}.jpg')
    write(root / 'all.geojson', collection(feature([on_map(SQUARE)])))
    assert 'all.geojson: none of its objects is in an image' in refusal(root)


def test_latitude_before_longitude(tmp_path: Path) -> None:
    root = pairs(tmp_path / 'a', feature([[pair[::-1] for pair in on_map(SQUARE)]]))
    said = refusal(root)
    assert (
        str(root) in said
        and 'is the coordinate system right? (left out): a.geojson' in said
    )


def test_without_rasterio_and_shapefiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / 'b'
    tif(root / 'a.tif')
    write(root / 'trees.shp', b'\0')
    said = refusal(root)
    assert (
        f'{root}/trees.shp: ' in said
        and '`ogr2ogr -f GeoJSON labels.geojson FILE`' in said
    )
    root = pairs(tmp_path / 'a', feature([on_map(SQUARE)]))
    monkeypatch.setattr(geojson, 'find_spec', lambda name: None)
    assert (
        'a.geojson is placed by rasterio and shapely: install the extra "large"'
        in refusal(root)
    )


@pytest.mark.parametrize('to_map', [TO_MAP, ROTATED], ids=['north up', 'rotated'])
def test_what_predict_large_writes_is_read_back(tmp_path: Path, to_map: Affine) -> None:
    diamond = [20.3, 5.1, 30.2, 15.2, 20.1, 25.3, 10.2, 15.2]
    boxes = [dict(bbox=[3.2, 4.4, 12.5, 7.1], category_id=1, score=0.5)]
    boxes += [
        dict(
            bbox=[0, 0, 0, 0],
            rbox=[0],
            segmentation=[diamond],
            category_id=2,
            score=0.9,
        )
    ]
    categories = [dict(id=1, name='car'), dict(id=2, name='ship')]
    root = tmp_path / 'a'
    for split in ('train', 'val'):
        large = LargeImage(tif(root / split / 'a.tif', to_map))
        content = dict(categories=categories, annotations=boxes)
        write(root / split / 'a.geojson', geojson_text(content, large).encode())
    first, second = reading(root).content['train']['annotations']
    assert first['bbox'] == pytest.approx([3.2, 4.4, 12.5, 7.1], abs=0.01)
    assert first['category_id'] == 1 and second['category_id'] == 2
    corners = np.reshape(second['segmentation'][0], (-1, 2))
    distances = np.linalg.norm(corners[:, None] - np.reshape(diamond, (-1, 2)), axis=-1)
    assert distances.min(0).max() < 0.5 and reading(root).classes == ('car', 'ship')


def test_a_large_object_over_a_small_image(tmp_path: Path) -> None:
    """Its corners are far away: they would take memory for each pixel on the way."""
    far = [[-9000, -9000], [9000, -9000], [9000, 9000], [-9000, 9000]]
    found = reading(pairs(tmp_path / 'a', feature([on_map(far)])), outlines=True)
    (item,) = found.content['train']['annotations']
    assert item['bbox'] == pytest.approx([0, 0, 40, 30]) and mask_of(item).all()


def test_images_in_two_zones(tmp_path: Path) -> None:
    """A file in degrees over images of two systems; far objects have no place in either."""
    root, rings = tmp_path / 'a', []
    for n, crs in enumerate((UTM, 'EPSG:32634')):
        tif(root / f'{n}.tif', crs=crs)
        x, y = zip(*(TO_MAP * pair for pair in [*SQUARE, SQUARE[0]]), strict=True)
        rings.append(
            [[*pair] for pair in zip(*transform(crs, 'EPSG:4326', x, y), strict=True)]
        )
    rings.append([[-75, 0], [-74, 0], [-74, 2], [-75, 0]])
    write(root / 'all.geojson', collection(*(feature([ring]) for ring in rings)))
    found = reading(root)
    assert all(x == [CAT] for some in found.objects.values() for x in some.values())
    assert sum(map(len, found.objects.values())) == 2
    assert (
        '1 x object that is in no image (left out): all.geojson, feature 3'
        in found.text
    )


@pytest.mark.parametrize('source', ['labels', 'labels/all.geojson'])
def test_convert_data(tmp_path: Path, source: str) -> None:
    names = (
        [f'{n}.geojson' for n in range(4)] if source == 'labels' else ['all.geojson']
    )
    maps = tiles(tmp_path / 'tiles', count=4)
    features = [feature([on_map(SQUARE, to_map=to_map)]) for to_map in maps]
    for name, some in zip(
        names, [[x] for x in features] if len(names) > 1 else [features], strict=True
    ):
        write(tmp_path / 'labels' / name, collection(*some))
    out = tmp_path / 'out' / 'train.json'
    convert_data('geojson', tmp_path / source, out, images=tmp_path / 'tiles')
    found = objects_in(json.loads(out.read_text()))
    assert found == {f'{n}.tif': [CAT] for n in range(4)}


def test_files_of_images_that_are_not_there(tmp_path: Path) -> None:
    """Where files have names of images, objects go to no neighbour of a missing image."""
    root = pairs(tmp_path / 'a', feature([on_map(SQUARE)]))
    write(
        root / 'train' / 'labels' / 'b.geojson', collection(feature([on_map(SQUARE)]))
    )
    found = reading(root)
    assert found.objects['train'] == {'train/images/a.tif': [CAT]}
    assert (
        '1 x object of an image that is not there (left out): b.geojson, feature 1'
        in found.text
    )


def test_corrected_coordinates_are_read_anew(tmp_path: Path) -> None:
    """Of the labels, and of an image whose pixels and header stay the same."""
    root = pairs(tmp_path / 'a', feature([on_map(SQUARE)]))
    reading(root)
    moved = [[x + 2, y] for x, y in SQUARE]
    write(root / 'train' / 'labels' / 'a.geojson', collection(feature([on_map(moved)])))
    assert [*reading(root).objects['train'].values()] == [[('cat', (12, 5, 20, 10), 0)]]
    tif(root / 'train' / 'images' / 'a.tif', TO_MAP * Affine.translation(1, 0))
    assert [*reading(root).objects['train'].values()] == [[('cat', (11, 5, 20, 10), 0)]]


def test_an_image_on_the_date_line(tmp_path: Path) -> None:
    """Objects on both sides of 180 degrees, and one of the same latitude far away."""
    root = tmp_path / 'a'
    for split in ('train', 'val'):
        tif(
            root / split / 'a.tif',
            Affine(1000, 0, 720_000, 0, -1000, 5_000_000),
            'EPSG:32660',
        )
    x, y = transform('EPSG:32660', 'EPSG:4326', [730_000, 745_000], [4_985_000] * 2)
    rings = [
        [[a, b], [a + 0.05, b], [a, b + 0.05], [a, b]]
        for a, b in zip(x, y, strict=True)
    ]
    far = [[-75, y[0]], [-74, y[0]], [-74, y[0] + 1], [-75, y[0]]]
    for split in ('train', 'val'):
        write(
            root / split / 'a.geojson',
            collection(*(feature([one]) for one in (*rings, far))),
        )
    found = reading(root)
    assert x[0] > 0 > x[1]
    assert [len(some) for some in found.objects['train'].values()] == [2]
    assert (
        '2 x object outside of its image (left out): a.geojson, feature 3' in found.text
    )


def test_an_object_as_large_as_a_continent(tmp_path: Path) -> None:
    """Most of its corners have no place in the system of the image."""
    land = [[-170, -80], [170, -80], [170, 80], [-170, 80], [-170, -80]]
    found = reading(pairs(tmp_path / 'a', feature([on_map(SQUARE)]), feature([land])))
    assert [*found.objects['train'].values()] == [[CAT, ('cat', (0, 0, 40, 30), 0)]]


def test_polygons_that_cross_themselves(tmp_path: Path) -> None:
    """A bow has two triangles, also where a part of it is outside."""
    bow = [[30, 5], [50, 25], [50, 5], [30, 25]]
    found = reading(pairs(tmp_path / 'a', feature([on_map(bow)])), outlines=True)
    (item,) = found.content['train']['annotations']
    assert item['bbox'] == pytest.approx([30, 5, 10, 20], abs=0.01)
    assert mask_of(item).sum() == pytest.approx(100, abs=10)  # of 20 slanted rows


def test_a_file_is_compared_with_the_images_near_its_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not each file with each image: 2,000 images with 100 files would take minutes."""
    for n, to_map in enumerate(tiles(tmp_path / 'data', count=10)):
        one = feature([on_map(SQUARE, to_map=to_map)])
        write(tmp_path / 'data' / f'region_{n}.geojson', collection(one))
    placed = []

    def counted(*given: Any) -> list:
        placed.append(given)
        return placed_in(*given)

    placed_in = geojson.placed_in
    monkeypatch.setattr(geojson, 'placed_in', counted)
    found = reading(tmp_path / 'data')
    objects = [*found.objects['train'].values(), *found.objects['val'].values()]
    assert objects == [[CAT]] * 10
    assert len(placed) <= 3 * 10  # where it is found, and by the reader of each split


def test_names_of_single_objects_are_no_classes(tmp_path: Path) -> None:
    """As of OpenStreetMap: name="School No. 7" and building="school"."""
    ring = on_map(SQUARE)
    things = [feature([ring], name=f'No. {n}', building='school') for n in range(9)]
    line = "9 objects have 9 different values of 'name', which is no class: call"
    assert line in refusal(pairs(tmp_path / 'few', *things))
    things = [feature([ring], name=f'No. {n % 9}') for n in range(18)]
    found = reading(pairs(tmp_path / 'many', *things))
    assert 'No. 7' in found.classes
