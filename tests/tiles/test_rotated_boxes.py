"""Rotated boxes of large images: each shape once, merged as by mmcv's NMS, and on the map."""

import json
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmengine.structures import BaseDataElement, InstanceData
from PIL import Image

from rope_dense.data.rotated import rectangle_corners, smallest_rectangle, to_convention
from rope_dense.data.rotated_results import dota_texts
from rope_dense.data.tiles.detection import (
    as_coco,
    detect,
    make_levels,
    suppress_duplicates,
    upright,
)
from rope_dense.data.tiles.image_file import LargeImage, geojson_text, is_on_map
from rope_dense.utils.disk import read_json_lines
from rope_dense.utils.journal import Journal

rasterio = pytest.importorskip(
    'rasterio', reason="no rasterio: pip install -e '.[large]'"
)
pytestmark = pytest.mark.filterwarnings(
    'ignore::rasterio.errors.NotGeoreferencedWarning'
)

BOXES = np.array(
    [  # x, y, w, h, angle
        [54.0, 54, 14, 8, 0.6],  # in the overlap of four tiles
        [105, 24, 26, 6, -1.1],
        [100, 150, 160, 14, 1.2],  # longer than two tiles
        [190, 60, 100, 60, 0.4],  # larger than a tile
        [30, 220, 40, 12, -0.5],
    ]
)


def drawn(side: int) -> np.ndarray:
    picture = np.zeros((side, side), np.uint8)
    for corners in rectangle_corners(BOXES):
        cv2.fillPoly(picture, [corners.reshape(4, 2).round().astype(np.int32)], 255)
    return picture


def perfect(tiles: Sequence[np.ndarray], shrink: int = 1) -> list[BaseDataElement]:
    """The smallest rectangle around each connected part that is bright."""
    samples = []
    for tile in tiles:
        count, parts = cv2.connectedComponents(np.uint8(tile[..., 0] > 127))
        boxes = [
            smallest_rectangle(np.argwhere(parts == part)[:, ::-1].ravel() + 0.5)
            for part in range(1, count)
        ]
        found = InstanceData(
            bboxes=torch.from_numpy(np.reshape(boxes, (-1, 5))).float()
        )
        found.scores = 1 - 1 / (
            found.bboxes[:, 2:4].prod(1) + 2
        )  # surer of large parts
        found.labels = torch.zeros(count - 1, dtype=torch.long)
        samples.append(BaseDataElement(pred_instances=found))
    return samples


def found_in(picture: np.ndarray, folder: Path) -> list[dict]:
    Image.fromarray(picture).save(folder / 'a.png')
    levels = make_levels(*picture.shape, tile=64, overlap=16, halvings=-1)
    journal = Journal(folder / 'work', {})
    detect(folder / 'a.png', levels, 0.1, None, perfect, journal, range(99))
    return suppress_duplicates(list(read_json_lines(journal.content)), 0.1)


def test_every_shape_is_found_once(tmp_path: Path) -> None:
    lines = found_in(drawn(256), tmp_path)
    found = to_convention(np.array([line['rbox'] for line in lines]), 'le90')
    assert len(found) == len(BOXES)
    for box in BOXES:
        nearest = found[np.linalg.norm(found[:, :2] - box[:2], axis=1).argmin()]
        shrink = max(1, box[2] / 30)  # pixels of the level that a shape fits into
        np.testing.assert_allclose(nearest[:4], box[:4], atol=2 * shrink)
        assert abs(nearest[4] - box[4]) < 0.15
    for line in lines:
        np.testing.assert_allclose(
            line['box'], upright(torch.tensor([line['rbox']]))[0], atol=1e-6
        )


def test_merging_is_mmcv_s_rotated_nms() -> None:
    """Where no box is cut and each is of another tile; far from the origin."""
    from mmcv.ops import nms_rotated

    draw = np.random.default_rng(0)
    boxes = draw.uniform([5000, 5000, 20, 8, -1.5], [5150, 5150, 60, 20, 1.5], (120, 5))
    scores = draw.permutation(120) / 120
    hulls = upright(torch.from_numpy(boxes))
    lines = [
        dict(box=hull, rbox=box, score=score, label=0, tile=tile, cut=False)
        for tile, (hull, box, score) in enumerate(
            zip(hulls.tolist(), boxes.tolist(), scores.tolist(), strict=True)
        )
    ]
    for threshold in (0.1, 0.5):
        shifted = torch.from_numpy(boxes - [5100, 5100, 0, 0, 0]).float()
        _, kept = nms_rotated(shifted, torch.from_numpy(scores).float(), threshold)
        found = [line['tile'] for line in suppress_duplicates(lines, threshold)]
        assert found == kept.tolist() and 10 < len(found) < 120


def test_results_have_their_convention_and_dota_s_form(tmp_path: Path) -> None:
    lines = found_in(drawn(256), tmp_path)
    content = as_coco(lines, 'a.png', (256, 256), ['ship', 'large vehicle'], 'le135')
    assert content['info'] == dict(angle_version='le135', angle_unit='radian')
    for item in content['annotations']:
        assert (
            -np.pi / 4 <= item['rbox'][4] < 3 * np.pi / 4
            and item['rbox'][2] >= item['rbox'][3]
        )
        assert item['area'] == pytest.approx(item['rbox'][2] * item['rbox'][3])
    objects = [('a', item) for item in content['annotations']]
    texts = dota_texts(['ship', 'large vehicle'], objects)
    first, *others = texts['Task1_ship.txt'].splitlines()
    name, score, *corners = first.split()
    assert name == 'a' and float(score) == pytest.approx(lines[0]['score'], abs=1e-4)
    np.testing.assert_allclose(
        np.array(corners, float),
        content['annotations'][0]['segmentation'][0],
        atol=0.006,
    )
    assert len(others) == len(BOXES) - 1
    assert texts['Task1_large vehicle.txt'] == ''


def test_each_class_has_a_file_of_its_own() -> None:
    """K9: `a/b` and `a_b` wrote one file, the second emptied the first."""
    classes = ['a/b', 'a_b', 'A_b', 'x' * 300, 'y\0']
    corners = [[0, 0, 9, 0, 9, 9, 0, 9]]
    items = [dict(category_id=n, score=0.5, segmentation=corners) for n in range(1, 6)]
    texts = dota_texts(classes, [('a', item) for item in items])
    names = [
        'Task1_A_b_3.txt',
        'Task1_a_b.txt',
        'Task1_a_b_2.txt',
        f'Task1_{"x" * 100}.txt',
    ]
    assert sorted(texts) == [*names, 'Task1_y_.txt']
    assert all(text.startswith('a 0.5000 0.00') for text in texts.values())


def geotiff(path: Path, **more: object) -> LargeImage:
    profile = dict(driver='GTiff', dtype='uint8', count=1, height=256, width=256) | more
    with rasterio.open(path, 'w', **profile) as file:
        file.write(drawn(256), 1)
    return LargeImage(path)


def test_geojson_is_on_the_map(tmp_path: Path) -> None:
    """Corners in longitude and latitude come back to the pixels by rasterio's own way."""
    from rasterio.transform import from_origin
    from rasterio.warp import transform

    to_map = from_origin(500_000, 5_000_000, 0.3, 0.3)
    image = geotiff(tmp_path / 'a.tif', crs='EPSG:32633', transform=to_map)
    hulls = upright(torch.from_numpy(BOXES)).tolist()
    lines = [
        dict(box=hull, rbox=box, score=0.9, label=0)
        for hull, box in zip(hulls, BOXES.tolist(), strict=True)
    ]
    for keys in (('box', 'rbox'), ('box',)):
        some = [
            {k: v for k, v in line.items() if k in (*keys, 'score', 'label')}
            for line in lines
        ]
        content = as_coco(some, 'a.tif', (256, 256), ['ship'], 'le90')
        features = json.loads(geojson_text(content, image))['features']
        assert features[0]['properties'] == {'class': 'ship', 'score': 0.9}
        for feature, box, hull in zip(features, BOXES, hulls, strict=True):
            (ring,) = feature['geometry']['coordinates']
            assert ring[0] == ring[-1] and len(ring) == 5
            easts, norths = transform(
                'EPSG:4326', 'EPSG:32633', *zip(*ring[:4], strict=True)
            )
            pixels = np.array(
                [~to_map * pair for pair in zip(easts, norths, strict=True)]
            )
            left, top, right, bottom = hull
            upright_corners = np.array(
                [[left, top], [right, top], [right, bottom], [left, bottom]]
            )
            expected = (
                rectangle_corners(box).reshape(4, 2)
                if 'rbox' in keys
                else upright_corners
            )
            distances = np.linalg.norm(pixels[:, None] - expected, axis=-1)
            assert distances.min(1).max() < 1e-3
            x, y = np.array(ring).T
            assert (
                x[:-1] * y[1:] - x[1:] * y[:-1]
            ).sum() > 0  # counter-clockwise, as RFC 7946


def test_without_a_coordinate_system_there_is_no_geojson(tmp_path: Path) -> None:
    assert not is_on_map(geotiff(tmp_path / 'a.tif'))
    assert not is_on_map(geotiff(tmp_path / 'a.tif', crs='EPSG:32633'))
