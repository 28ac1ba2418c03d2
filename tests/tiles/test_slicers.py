"""Tiles and their objects against mmrotate's splitter (as installed) and sahi's slicer.

Rules that differ: the last tiles of both slicers lie at the end of an axis, and overlap the ones
before more; ours are evenly spaced, as many and with the same least overlap. mmrotate keeps the
corners of an object outside of its tile, sahi and ours cut them. Both drop an object of which less
than the share is inside; ours is ignored there.
"""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import cv2
import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_mask

from helpers.large_scenes import draw_scene
from helpers.tool_names import Main
from rope_dense.data.rotated import rectangle_corners
from rope_dense.data.tiles.objects import objects_in
from rope_dense.data.tiles.plan import TilePlan, Window
from rope_dense_command import command

SCENES = 200


@pytest.fixture(scope='module')
def splitter() -> ModuleType:
    found = importlib.util.find_spec('mmrotate')
    if found is None or found.origin is None:
        pytest.skip('no mmrotate: pip install --no-deps onedl-mmrotate')
    path = Path(found.origin).parent / '.mim/tools/data/dota/split/img_split.py'
    spec = importlib.util.spec_from_file_location('img_split', path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def scene(seed: int) -> tuple[int, int, int, int, np.ndarray]:
    """Height, width, tile, overlap and rectangles [N, 8] of a random scene of whole steps."""
    random = np.random.default_rng(seed)
    tile = int(random.integers(40, 100))
    overlap = int(random.integers(0, tile // 2))
    height, width = (
        tile + int(random.integers(0, 4)) * (tile - overlap) for _ in range(2)
    )
    centres = random.uniform(0, [width, height], (30, 2))
    sides, angles = random.uniform(4, 50, (30, 2)), random.uniform(0, np.pi, (30, 1))
    return (
        height,
        width,
        tile,
        overlap,
        rectangle_corners(np.hstack([centres, sides, angles])),
    )


def test_tiles_and_objects_of_mmrotate(splitter: ModuleType) -> None:
    compared = 0
    for seed in range(SCENES):
        height, width, tile, overlap, corners = scene(seed)
        info = dict(width=width, height=height, ann=dict(bboxes=corners))
        theirs = splitter.get_sliding_window(info, [tile], [overlap], 0)
        kept = splitter.get_window_obj(info, theirs, 0.7)
        windows = TilePlan(tile, overlap).windows(height, width)
        assert {*map(tuple, theirs.tolist())} == {*map(tuple, windows)}
        points = corners.reshape(-1, 4, 2)
        boxes = np.concatenate([points.min(1), points.max(1)], 1)
        objects = [
            dict(bbox=box.tolist(), ignore_flag=0, mask=[one.tolist()], number=number)
            for number, (box, one) in enumerate(zip(boxes, corners, strict=True))
        ]
        for window, expected in zip(theirs.tolist(), kept, strict=True):
            # An object at the side of its image is whole for us: inside of the image here.
            inner = (boxes[:, :2] >= 0).all(1) & (boxes[:, 2:] <= [width, height]).all(
                1
            )
            found, whole = objects_in(
                objects, boxes, Window(*window), (height, width), 0.7
            )
            ours = {
                x['number']
                for x in found
                if not x['ignore_flag'] and inner[x['number']]
            }
            same = {tuple(one): number for number, one in enumerate(corners.tolist())}
            numbers = {same[tuple(one)] for one in expected['bboxes'].tolist()}
            assert ours == {number for number in numbers if inner[number]}
            shares = splitter.bbox_overlaps_iof(corners, np.array([window]))[:, 0]
            apart = [
                n for n in ours if abs(shares[n] - 1) > 1e-4 or whole[n]
            ]  # from a hair's cut
            assert all(whole[number] == (shares[number] > 1 - 1e-6) for number in apart)
            compared += len(ours)
    assert compared > 3_000


@pytest.mark.parametrize('seed', range(20))
def test_other_sizes_have_as_many_tiles_as_mmrotate(
    splitter: ModuleType, seed: int
) -> None:
    random = np.random.default_rng(seed)
    height, width = random.integers(50, 700, 2).tolist()
    info = dict(width=width, height=height)
    theirs = splitter.get_sliding_window(info, [100], [30], 0)
    ours = np.array(TilePlan(100, 30).windows(height, width))
    assert len(theirs) == len(ours)
    for axis, length in ((0, width), (1, height)):
        starts = np.unique(ours[:, axis]).tolist()
        assert np.diff(starts).max(initial=0) <= 70 and starts[0] == 0
        assert starts[-1] == max(length - 100, 0) == theirs[:, axis].max()


def test_tiles_and_boxes_of_sahi() -> None:
    slicing = pytest.importorskip(
        'sahi.slicing', reason='no sahi: pip install --no-deps sahi'
    )
    coco = pytest.importorskip('sahi.utils.coco')
    compared = 0
    for seed in range(SCENES // 2):
        height, width, tile, overlap, corners = scene(seed)
        ratio = (overlap + 0.01) / tile  # sahi rounds down
        theirs = slicing.get_slice_bboxes(
            height, width, tile, tile, False, ratio, ratio
        )
        windows = TilePlan(tile, overlap).windows(height, width)
        assert {*map(tuple, theirs)} == {*map(tuple, windows)}
        points = corners.reshape(-1, 4, 2)
        boxes = np.concatenate([points.min(1), points.max(1)], 1).clip(
            0, [width, height] * 2
        )
        boxes = boxes.astype(int)[
            (np.diff(boxes.astype(int).reshape(-1, 2, 2), axis=1) > 4).all((1, 2))
        ]
        objects = [dict(bbox=box.tolist(), ignore_flag=0) for box in boxes]
        items = [
            coco.CocoAnnotation(
                bbox=[x, y, r - x, b - y], category_id=0, category_name='a'
            )
            for x, y, r, b in boxes.tolist()
        ]
        for window in windows:
            expected = slicing.process_coco_annotations(items, [*window], 0.7)
            found, _ = objects_in(
                objects, boxes.astype(float), window, (height, width), 0.7
            )
            ours = [x['bbox'] for x in found if not x['ignore_flag']]
            cut = [
                [x, y, x + w, y + h] for x, y, w, h in (item.bbox for item in expected)
            ]
            assert sorted(ours) == sorted(cut)
            compared += len(ours)
    assert compared > 2_000


@pytest.fixture(scope='module')
def convert() -> Main:
    return command('convert_data')


def test_tiles_as_files(
    convert: Main, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pixels, objects = draw_scene(150, 220, 20, 0)
    Image.fromarray(pixels).save(tmp_path / 'P1.png')
    items = [
        dict(
            id=index,
            image_id=1,
            category_id=1 + label,
            iscrowd=0,
            bbox=box,
            area=box[2] * box[3],
        )
        for index, (label, box) in enumerate(objects, 1)
    ]
    content = dict(images=[dict(id=1, file_name='P1.png', height=150, width=220)])
    content |= dict(
        annotations=items, categories=[dict(id=1, name='a'), dict(id=2, name='b')]
    )
    (tmp_path / 'all.json').write_text(json.dumps(content))
    out = tmp_path / 'out'
    given = [
        'tiles',
        str(tmp_path / 'all.json'),
        str(out),
        '--tile',
        '96',
        '--overlap',
        '20',
    ]
    assert convert([*given, '--scales', '0.5', '1']) == 0
    assert 'tiles, ' in capsys.readouterr().out and not (out / 'copies').exists()
    tiles = json.loads((out / 'tiles.json').read_text())
    names = {Path(image['file_name']).name for image in tiles['images']}
    assert {'P1__1__0___0.png', 'P1__1__124___54.png', 'P1__0.5__0___0.png'} <= names
    for image in tiles['images']:
        _, scale, left, top = (
            Path(image['file_name']).stem.replace('___', '__').split('__')
        )
        left, top = int(left), int(top)
        whole = pixels if scale == '1' else cv2.resize(pixels, None, fx=0.5, fy=0.5)
        part = whole[top : top + image['height'], left : left + image['width'], ::-1]
        read = cv2.imread(str(out / image['file_name']))
        assert read.shape == (image['height'], image['width'], 3)
        assert np.abs(read.astype(int) - part).mean() < (0.1 if scale == '1' else 6)
        for item in (x for x in tiles['annotations'] if x['image_id'] == image['id']):
            x, y, w, h = item['bbox']
            assert (
                x >= 0
                and y >= 0
                and x + w <= image['width']
                and y + h <= image['height']
            )
    assert convert(given) == 2
    assert 'exists, and nothing is written over' in capsys.readouterr().err
    assert convert(given[:3]) == 2
    assert '--tile: give it for tiles' in capsys.readouterr().err


def devkit_name_and_place(stem: str) -> tuple[str, float, int, int]:
    """Image, rate, x and y of a tile by its name, as ResultMerge.py of DOTA_devkit takes it."""
    x, y = map(int, re.findall(r'\d+', re.findall(r'__\d+___\d+', stem)[0]))
    return (
        stem.split('__')[0],
        float(re.findall(r'__([\d+\.]+)__\d+___', stem)[0]),
        x,
        y,
    )


@pytest.mark.parametrize('kind', ['box', 'polygon', 'run lengths'])
def test_the_devkit_merges_tiles_of_three_scales(
    convert: Main, tmp_path: Path, kind: str
) -> None:
    """Each object of each image is found again, at its place; a tile has its own image's pixels."""
    where = {
        'flight1/0001.png': (21, 30, 60, 40), 'flight2/0001.png': (121, 110, 33, 51),
        'flight2/0001.jpg': (90, 60, 41, 31), 'a_b/c.png': (2, 3, 50, 50),
        'a/b__c.png': (9, 9, 50, 50),
    }  # fmt: skip
    content: dict = dict(
        images=[], annotations=[], categories=[dict(id=3, name='thing')]
    )
    for number, (name, (x, y, w, h)) in enumerate(where.items(), 1):
        pixels = np.zeros((200, 240, 3), np.uint8)
        pixels[y : y + h, x : x + w] = 40 * number
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / name)
        content['images'].append(dict(id=number, file_name=name, height=200, width=240))
        item = dict(
            id=number, image_id=number, category_id=3, iscrowd=0, bbox=[x, y, w, h]
        )
        corners = [x, y, x + w, y, x, y + h]  # a triangle
        outline: object = [corners]
        if kind == 'run lengths':
            outline = coco_mask.frPyObjects([corners], 200, 240)[0]
            outline['counts'] = outline['counts'].decode()
        item |= (
            dict(area=1.0) if kind == 'box' else dict(area=1.0, segmentation=outline)
        )
        content['annotations'].append(item)
    (tmp_path / 'all.json').write_text(json.dumps(content))
    given = ['tiles', str(tmp_path / 'all.json'), str(tmp_path / 'out'), '--tile', '96']
    assert convert([*given, '--scales', '0.5', '1', '1.5']) == 0
    tiles = json.loads((tmp_path / 'out' / 'tiles.json').read_text())
    names = [Path(image['file_name']).stem for image in tiles['images']]
    assert len({*names}) == len(names) == len([*tmp_path.glob('out/images/*.png')])
    whole = set()
    for item in tiles['annotations']:
        name, rate, left, top = devkit_name_and_place(names[item['image_id'] - 1])
        read = cv2.imread(
            str(tmp_path / 'out' / tiles['images'][item['image_id'] - 1]['file_name'])
        )
        assert read.shape == (96, 96, 3)
        number = round(read.max() / 40)
        x, y, w, h = item['bbox']
        if not item['iscrowd'] and min(x, y) > 1 and max(x + w, y + h) < 95:
            place = (x + left) / rate, (y + top) / rate, w / rate, h / rate
            expected = [*where.values()][number - 1]
            assert place == pytest.approx(
                expected, abs=2.1 if kind == 'run lengths' else 1e-6
            )
            share = 1.0 if kind == 'box' else 0.5
            assert item['area'] == pytest.approx(
                share * w * h, rel=0.1 if share < 1 else 1e-9
            )
            inside = read[
                round(y) + 1 : round(y + h) - 1, round(x) + 1 : round(x + w) - 1
            ]
            assert np.abs(inside.astype(int) - 40 * number).max() <= 12  # of a jpeg
            whole.add((number, name, rate))
    assert {number for number, *_ in whole} == {1, 2, 3, 4, 5}
    assert len({name for _, name, _ in whole}) == 5 and {r for *_, r in whole} == {
        0.5,
        1,
        1.5,
    }
