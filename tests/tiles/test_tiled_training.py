"""Training and testing on tiles: windows, objects, pixels, the order of files, whole images."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DATASETS, EVALUATOR, DefaultScope
from mmengine.structures import InstanceData, PixelData
from PIL import Image
from pycocotools import mask as coco_mask
from torch.utils.data import DataLoader

from helpers.large_scenes import CLASSES, write_scenes
from rope_dense.data import dense  # noqa: F401, registered
from rope_dense.data.images.band_files import write_bands
from rope_dense.data.images.bands import LoadBands
from rope_dense.data.tiles import dataset as tiled
from rope_dense.data.tiles.dataset import TiledDataset, TileSampler
from rope_dense.data.tiles.evaluation import TileJoiner
from rope_dense.data.tiles.image_file import LargeImage
from rope_dense.data.tiles.objects import objects_in
from rope_dense.data.tiles.plan import TilePlan, Window
from rope_dense.project.load import load_config
from rope_dense.utils.errors import UsageError

pytest.importorskip('rasterio', reason="no rasterio: pip install -e '.[large]'")
pytestmark = pytest.mark.usefixtures('surroundings')
LOAD = dict(type='LoadImageFromFile')
PIPELINE = [
    LOAD,
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='PackDetInputs'),
]
TEST = [LOAD, dict(type='PackDetInputs')]


@pytest.fixture(scope='module')
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scenes(
        tmp_path_factory.mktemp('scenes'), dict(train=5, val=2), outlines=True
    )


def tiles_of(root: Path, split: str = 'train', **settings: Any) -> TiledDataset:
    """Tiles of 96 pixels that share 32 of scenes, read by mmdet."""
    given = dict(kind='CocoDataset', tile=96, overlap=32, copies=str(root / 'copies'))
    given |= dict(data_root=f'{root}/', ann_file=f'annotations/{split}.json')
    given |= dict(data_prefix=dict(img=f'{split}/'), metainfo=dict(classes=CLASSES))
    given |= dict(
        pipeline=PIPELINE if split == 'train' else TEST, test_mode=split == 'val'
    )
    with DefaultScope.overwrite_default_scope('mmdet'):
        return DATASETS.build(dict(type='TiledDataset', **given | settings))


# ---------------------------------------------------------------- windows


def test_windows_of_several_scales() -> None:
    plan = TilePlan(96, 32, [0.5, 1])
    windows = plan.windows(200, 300)
    sides = {(w.right - w.left, w.bottom - w.top) for w in windows}
    assert sides == {(192, 192), (96, 96)} and len({*windows}) == len(windows)
    seen = np.zeros((2, 200, 300), int)
    for left, top, right, bottom in windows:
        seen[int(right - left == 96), top:bottom, left:right] += 1
    assert seen.min() == 1
    assert plan.windows(90, 60) == [Window(0, 0, 60, 90)]  # once, not for each scale
    assert (
        plan.halvings,
        TilePlan(96, 32).halvings,
        TilePlan(96, 32, [2, 0.5]).halvings,
    ) == (*(1, 0, 2),)


# ---------------------------------------------------------------- objects


def random_objects(number: int, kind: str, size: tuple[int, int]) -> list[dict]:
    """Objects of mmdet: boxes, quadrilaterals or run lengths of ellipses."""
    random, (height, width) = np.random.default_rng(0), size
    found = []
    for _ in range(number):
        w, h = random.integers(5, 60, 2)
        x, y = int(random.integers(width - w)), int(random.integers(height - h))
        item: dict = dict(bbox=[x, y, x + w, y + h], bbox_label=0, ignore_flag=0)
        if kind == 'polygons':
            item['mask'] = [
                [x + w / 2, y, x + w, y + h / 3, x + w / 2, y + h, x, y + h / 2]
            ]
        elif kind == 'lengths':
            pixels = np.zeros(size, np.uint8)
            centre, axes = (
                (int(x + w // 2), int(y + h // 2)),
                (int(w // 3) + 1, int(h // 3) + 1),
            )
            cv2.ellipse(pixels, centre, axes, 0, 0, 360, 1, -1)
            item['mask'] = coco_mask.encode(np.asfortranarray(pixels))
            left, top, w, h = coco_mask.toBbox(item['mask'])
            item['bbox'] = [left, top, left + w, top + h]
        found.append(item)
    return found


@pytest.mark.parametrize('kind', ['boxes', 'polygons', 'lengths'])
def test_objects_keep_what_is_inside(kind: str) -> None:
    """Against the pixels of each object, cut out of a mask of the whole image."""
    size = height, width = 150, 220
    objects = random_objects(60, kind, size)
    boxes = np.array([item['bbox'] for item in objects], float)
    found_ignored = 0
    for window in TilePlan(64, 16).windows(height, width):
        left, top, right, bottom = window
        found, is_whole = objects_in(objects, boxes, window, size, 0.7)
        expected = []
        for index, item in enumerate(objects):
            if kind == 'boxes':
                x0, y0, x1, y1 = map(int, item['bbox'])
                pixels = np.zeros(size, np.uint8)
                pixels[y0:y1, x0:x1] = 1
            elif kind == 'polygons':
                pixels = coco_mask.decode(coco_mask.frPyObjects(item['mask'], *size))[
                    ..., 0
                ]
            else:
                pixels = coco_mask.decode(item['mask'])
            part = pixels[top:bottom, left:right]
            x0, y0, x1, y1 = boxes[index]
            inside = left <= x0 and top <= y0 and x1 <= right and y1 <= bottom
            assert is_whole[index] == inside
            if part.any():
                expected.append((part, part.sum() / pixels.sum()))
        if kind != 'polygons':  # whose slivers have no pixel
            assert len(found) == len(expected)
        least, close = (100, 3.0) if kind == 'polygons' else (0, 1e-6)  # pixels
        for part, share in expected:
            rows, columns = np.nonzero(part)
            box = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
            near = [
                x for x in found if np.abs(np.subtract(x['bbox'], box)).max() <= close
            ]
            assert near or part.sum() < least
            if abs(share - 0.7) > 0.05 and part.sum() > 100:
                assert any(x['ignore_flag'] == (share < 0.7) for x in near)
                found_ignored += share < 0.7
            if kind == 'lengths':
                masks = [coco_mask.decode(x['mask']) for x in near]
                assert any((mask == part).all() for mask in masks)
    assert found_ignored > 20


def test_an_object_at_the_side_of_its_image_is_not_cut() -> None:
    """The rectangle around a ship may leave the image: the rest of it is all that there is."""
    ship = dict(bbox=[-20, 10, 30, 40], ignore_flag=0, bbox_label=0)
    ship['mask'] = [[-20, 10, 30, 10, 30, 40, -20, 40]]
    boxes = np.array([ship['bbox']], float)
    found, whole = objects_in([ship], boxes, Window(0, 0, 64, 64), (100, 100), 0.7)
    assert (
        whole.all()
        and found[0]['ignore_flag'] == 0
        and found[0]['mask'] == ship['mask']
    )
    found, whole = objects_in([ship], boxes, Window(0, 20, 64, 84), (100, 100), 0.7)
    assert not whole.any() and found[0]['ignore_flag'] == 1
    assert np.min(found[0]['mask'][0]) == -20 and found[0]['bbox'] == [-20, 0, 30, 20]


# ---------------------------------------------------------------- the data set


def test_tiles_have_the_pixels_and_objects_of_their_windows(scenes: Path) -> None:
    dataset = tiles_of(scenes)
    image = cv2.imread(str(scenes / 'train' / '0.png'))
    for index in np.flatnonzero(dataset.images == 0):
        left, top, right, bottom = dataset.get_data_info(index)['window']
        packed = dataset[index]
        pixels = packed['inputs'].numpy().transpose(1, 2, 0)
        assert (pixels == image[top:bottom, left:right]).all()
        for x0, y0, x1, y1 in (
            packed['data_samples'].gt_instances.bboxes.tensor.int().tolist()
        ):
            middle = pixels[(y0 + y1) // 2, (x0 + x1) // 2]
            assert middle.max() > 150 or x1 - x0 < 6  # an object, no background
    counts = dataset.counts
    assert counts['all'] == 150 and counts['tiles'] == len(dataset) == 75
    assert (
        dataset.full_init() is None and len([*(scenes / 'copies').glob('*.tif')]) == 5
    )


def test_empty_tiles_are_kept_in_a_ratio(tmp_path: Path) -> None:
    root = write_scenes(tmp_path, dict(train=3, val=1), 400, 600, objects=4)
    numbers = {}
    for ratio in (0.0, 0.5, 1000.0):
        dataset = tiles_of(root, empty=ratio)
        objects = [dataset.get_data_info(i)['instances'] for i in range(len(dataset))]
        numbers[ratio] = sum(
            any(not x['ignore_flag'] for x in some) for some in objects
        )
        empty = len(dataset) - numbers[ratio]
        every = 3 * len(TilePlan(96, 32).windows(400, 600))
        assert empty == min(round(ratio * numbers[ratio]), every - numbers[ratio])
        assert dataset.counts['empty'] == empty
    assert len({*numbers.values()}) == 1 and numbers[0.0] > 10


def test_objects_that_no_tile_has_as_a_whole_are_counted(scenes: Path) -> None:
    assert tiles_of(scenes).counts['never_whole'] == 0
    dataset = tiles_of(scenes, tile=100, overlap=0)
    content = json.loads((scenes / 'annotations' / 'train.json').read_text())
    windows = np.array(TilePlan(100, 0).windows(200, 300))
    lost = 0
    for x, y, w, h in (item['bbox'] for item in content['annotations']):
        inside = (windows[:, :2] <= [x, y]).all(1) & (
            windows[:, 2:] >= [x + w, y + h]
        ).all(1)
        lost += not inside.any()
    assert dataset.counts['never_whole'] == lost > 10


@pytest.mark.parametrize('suffix', ['.tif', '.png', '.jpg', '.npy'])
def test_windows_of_files(suffix: str, tmp_path: Path) -> None:
    """Pixels equal the whole image's, and a file that is read from its beginning has a copy."""
    pixels = np.random.default_rng(0).integers(256, size=(150, 220, 3), dtype=np.uint8)
    path, bands, whole = tmp_path / f'a{suffix}', None, None
    if suffix == '.npy':
        deep = np.random.default_rng(0).integers(
            4096, size=(150, 220, 5), dtype=np.uint16
        )
        np.save(path, deep)
        bands = dict(type='LoadBands', channels=5, dtype='uint16', fill=[0.0] * 5)
        whole = LoadBands(5, dtype='uint16').load(path)
        assert (whole == deep).all()
    else:
        Image.fromarray(pixels).save(path)
        whole = LargeImage(path).read(0, 150)
    load = tiled.LoadWindow(bands)
    for window in (Window(100, 60, 196, 150), Window(0, 0, 50, 40)):
        left, top, right, bottom = window
        info = dict(
            img_path=str(path), window=window, shrink=1, copies=str(tmp_path / 'copies')
        )
        found = load.transform(info)
        assert (found['img'] == whole[top:bottom, left:right]).all()
        assert found['img_shape'] == found['ori_shape'] == (bottom - top, right - left)
    copies = [*(tmp_path / 'copies').glob('*.tif')]
    assert len(copies) == (suffix in ('.png', '.jpg'))
    tiled.open_cached.cache_clear()


def test_copies_are_of_the_files_as_they_are(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of the same size and time may be another one; copies of no file are removed."""
    monkeypatch.setattr('rope_dense.project.own.data.CONVERTED', tmp_path)
    copies = tmp_path / 'tiles'

    def window_of(path: Path) -> float:
        window = dict(window=Window(0, 0, 50, 40), shrink=1, copies=str(copies))
        tiled.open_cached.cache_clear()
        return (
            tiled.LoadWindow().transform(dict(window, img_path=str(path)))['img'].mean()
        )

    changed, gone, states = tmp_path / 'changed.png', tmp_path / 'gone.png', []
    Image.new('RGB', (300, 200)).save(gone)
    for shade in (20, 200):
        Image.new('RGB', (300, 200), (shade, shade, shade)).save(changed)
        os.utime(changed, (1, 1))
        states.append((changed.stat().st_size, changed.stat().st_mtime))
        assert [window_of(path) for path in (changed, gone)] == [shade, 0]
    assert states[0] == states[1] and len([*copies.glob('*.tif')]) == 3
    gone.unlink()
    (copies / 'mine.tif').write_text('mine')
    line = '2 copies of images that have changed or are gone were removed'
    assert line in own_config(scenes, tile=96).own_data
    assert 'copies' not in own_config(scenes, tile=96).own_data
    assert len([*copies.iterdir()]) == 3 and window_of(changed) == 200
    assert (copies / 'mine.tif').exists()


def test_channels_and_mosaics(tmp_path: Path) -> None:
    """Each step that loads an image reads windows, in mosaics too."""
    root = write_scenes(tmp_path, dict(train=2, val=1))
    for path in (root / 'train').iterdir():
        pixels = np.asarray(Image.open(path)).astype(np.uint16) * 16
        write_bands(
            path.with_suffix('.tif'), np.concatenate([pixels, pixels[..., :1]], 2)
        )
    listing = root / 'annotations' / 'train.json'
    listing.write_text(listing.read_text().replace('.png', '.tif'))
    bands = dict(type='LoadBands', channels=4, dtype='uint16', fill=[0.0] * 4)
    boxes, pack = (
        dict(type='LoadAnnotations', with_bbox=True),
        dict(type='PackDetInputs'),
    )
    plain = tiles_of(root, pipeline=[bands, boxes, pack])
    whole = LoadBands(4).load(root / 'train' / '0.tif')
    for index in (0, 7, 14):
        left, top, right, bottom = plain.get_data_info(index)['window']
        pixels = plain[index]['inputs'].numpy().transpose(1, 2, 0)
        assert (pixels == whole[top:bottom, left:right]).all()
    mosaic = dict(
        type='AffineMosaic', part_size=96, max_cached_images=0, load=dict(bands)
    )
    mosaic |= dict(rotation=0.0, translation=(0, 0), scaling=(1, 1))
    joined = tiles_of(root, pipeline=[bands, boxes, mosaic, pack])[0]['inputs'].numpy()
    first = plain[0]['inputs'].numpy()
    assert joined.shape == (4, 192, 192) and (joined[:, :96, :96] == first).all()
    assert all(part.max() > 1440 for part in (joined[:, 96:, :96], joined[:, 96:, 96:]))
    tiled.open_cached.cache_clear()


def test_a_turned_photograph(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(256, size=(90, 140, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[274] = 6
    Image.fromarray(pixels).save(tmp_path / 'a.png', exif=exif)
    window = Window(20, 60, 70, 120)
    info = dict(
        img_path=str(tmp_path / 'a.png'), window=window, shrink=1, copies=str(tmp_path)
    )
    found = tiled.LoadWindow().transform(info)['img']
    shown = np.rot90(pixels, -1)[..., ::-1]
    assert (found == shown[60:120, 20:70]).all()


# ---------------------------------------------------------------- the order


@pytest.mark.parametrize('open_files', [2, 8])
def test_few_files_at_a_time(
    scenes: Path, open_files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiled, 'OPEN', open_files)
    dataset = tiles_of(scenes)
    sampler = TileSampler(dataset, seed=3)
    iterator = iter(sampler)
    epochs = [[next(iterator) for _ in range(len(dataset))] for _ in range(2)]
    for epoch in epochs:
        assert sorted(epoch) == [*range(len(dataset))]
        order = dataset.images[epoch]
        groups = [
            {*order[start : start + 15 * open_files]} for start in (0, 15 * open_files)
        ]
        assert len(groups[0]) == min(open_files, 5) and groups[0].isdisjoint(groups[1])
    assert epochs[0] != epochs[1] and np.diff(dataset.images[epochs[0]]).any()
    again = iter(TileSampler(dataset, seed=3))
    assert [next(again) for _ in epochs[0]] == epochs[
        0
    ]  # a resumed run has the same order


def test_an_image_of_a_test_is_of_one_process(
    scenes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, shares = tiles_of(scenes, 'val'), []
    for rank in range(2):
        monkeypatch.setattr(
            'mmengine.dataset.sampler.get_dist_info', lambda rank=rank: (rank, 2)
        )
        sampler = TileSampler(dataset, shuffle=False, seed=0)
        assert [*sampler] == [*sampler] and len(sampler) == len([*sampler])
        shares.append([*sampler])
    assert sorted([*shares[0], *shares[1]]) == [*range(len(dataset))]
    assert [{*dataset.images[share]} for share in shares] == [{0}, {1}]


# ---------------------------------------------------------------- whole images


def perfect(sample: Any, objects: np.ndarray, labels: np.ndarray) -> Any:
    """A tile's sample with the boxes of its objects as a detector may find them: also cut ones."""
    place = sample.metainfo['place']
    grid, shrink = place.level.grid, place.level.shrink
    start = np.array([grid.lefts[place.column], grid.tops[place.row]] * 2)
    last = np.array([grid.tile_width, grid.tile_height] * 2)
    boxes = (objects / shrink - start).clip(0, last)
    is_seen = ((boxes[:, 2:] - boxes[:, :2]) >= 3).all(1)
    share = np.prod(boxes[:, 2:] - boxes[:, :2], 1) / np.prod(
        objects[:, 2:] - objects[:, :2], 1
    )
    found = InstanceData(bboxes=torch.tensor(boxes[is_seen]).float())
    found.scores = torch.tensor(0.5 + 0.4 * share[is_seen] * shrink**2).float()
    found.labels = torch.tensor(labels[is_seen])
    sample.pred_instances = found
    return sample


@pytest.mark.parametrize('scales', [(1.0,), (0.5, 1.0)])
def test_ap_of_whole_images(
    tmp_path: Path, scales: tuple[float, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """A detector that finds each object in each tile has an AP of 1, without duplicates."""
    root = write_scenes(tmp_path, dict(train=1, val=2), 300, 420, objects=12)
    dataset = tiles_of(root, 'val', scales=scales)
    content = json.loads((root / 'annotations' / 'val.json').read_text())
    ann_file = str(root / 'annotations' / 'val.json')
    metric = dict(type='mmdet.CocoMetric', ann_file=ann_file, metric='bbox')
    evaluator = EVALUATOR.build(dict(type='TiledEvaluator', metrics=[metric]))
    evaluator.dataset_meta = dict(classes=CLASSES)
    for index in range(len(dataset)):
        sample = dataset[index]['data_samples']
        items = [x for x in content['annotations'] if x['image_id'] == sample.img_id]
        boxes = np.array([x['bbox'] for x in items], float)
        boxes[:, 2:] += boxes[:, :2]
        labels = np.array([x['category_id'] for x in items])
        evaluator.process([perfect(sample, boxes, labels)])
    (kept,) = (metric.results for metric in evaluator.metrics)
    assert len(kept) == 2  # images, not tiles
    assert [len(found['bboxes']) for _, found in kept] == [12, 12]
    assert evaluator.evaluate(len(dataset))['coco/bbox_mAP'] == 1


def test_labels_of_whole_images(tmp_path: Path) -> None:
    """The parts of the tiles are the image without a gap, with the scores' weighted mean."""
    for kind in ('images', 'masks'):
        (tmp_path / kind).mkdir()
    random = np.random.default_rng(0)
    truth = random.integers(3, size=(200, 300), dtype=np.uint8)
    Image.fromarray(random.integers(256, size=(200, 300, 3), dtype=np.uint8)).save(
        tmp_path / 'images' / 'a.png'
    )
    Image.fromarray(truth).save(tmp_path / 'masks' / 'a.png')
    from rope_dense.data import map_datasets as masks  # noqa: F401, registered

    pipeline = [LOAD, dict(type='LoadClassMask'), dict(type='PackSegInputs')]
    files = dict(
        data_root=str(tmp_path),
        data_prefix=dict(img_path='images', seg_map_path='masks'),
    )
    files |= dict(
        metainfo=dict(classes=['a', 'b', 'c']), test_mode=True, pipeline=pipeline
    )
    with DefaultScope.overwrite_default_scope('mmseg'):
        given = dict(
            kind='ImageMaskDataset',
            tile=96,
            overlap=32,
            copies=str(tmp_path / 'copies'),
        )
        dataset = DATASETS.build(dict(type='TiledDataset', **given, **files))
    joiner, labels = TileJoiner(), np.full((200, 300), 9)
    for index in range(len(dataset)):
        sample = dataset[index]['data_samples']
        scores = torch.nn.functional.one_hot(sample.gt_sem_seg.data[0], 3).permute(
            2, 0, 1
        )
        sample.seg_logits = PixelData(data=scores.float())
        sample.pred_sem_seg = PixelData(data=sample.gt_sem_seg.data)
        (part,) = joiner.join([sample])
        predicted, true = (
            part.pred_sem_seg.data[0].numpy(),
            part.gt_sem_seg.data[0].numpy(),
        )
        assert (predicted == true).all()
        place = part.metainfo['place']
        top, left = (
            place.level.grid.tops[place.row],
            place.level.grid.lefts[place.column],
        )
        rows, columns = true.shape
        assert (
            labels[top : top + rows, left : left + columns] == 9
        ).all()  # no pixel twice
        labels[top : top + rows, left : left + columns] = predicted
    assert (labels == truth).all()


# ---------------------------------------------------------------- settings


def own_config(root: Path, task: str = 'realtime', **own: object) -> Config:
    settings = dict(data_root=str(root), backbone='tiny', weights=None, size=96, **own)
    return load_config(task, own=settings)


@pytest.mark.parametrize(
    'own, line',
    [
        (dict(tile=96, overlap=96), 'own.overlap=96: give less than own.tile=96'),
        (
            dict(scales=[0.5, 1]),
            'own.overlap, own.scales: for tiles of images; give own.tile',
        ),
        (dict(tile=96, scales=[0, 1]), 'own.scales=[0.0, 1.0]: give numbers above 0'),
        (
            dict(tile=96, least_share=1.5),
            'own.least_share=1.5: give a fraction, up to 1',
        ),
        (
            dict(tile=96, max_value=4095),
            'own.max_value=4095: tiles of 16 bits are read by own.ch',
        ),
        (dict(tile=8), 'own.tile must be an integer from 32 up, got 8'),
    ],
)
def test_settings_that_cannot_be(scenes: Path, own: dict, line: str) -> None:
    with pytest.raises(UsageError) as error:
        own_config(scenes, **own)
    assert line in str(error.value)


def test_the_recipe_says_what_becomes_of_the_images(scenes: Path) -> None:
    cfg = own_config(scenes, tile=100, overlap=0)
    assert '5 training images are 30 tiles of 100 pixels, resized to 96' in cfg.own_data
    assert 'of 150 objects are whole in no tile' in cfg.own_data
    assert cfg.train_cfg.max_iters == 50 * -(-30 // 4)
    assert cfg.val_evaluator.type == 'TiledEvaluator' and 'tta_pipeline' not in cfg
    deep = Config(cfg.to_dict())
    assert deep.own.tile == 100


def test_pictures_of_16_bits_are_refused(tmp_path: Path) -> None:
    root = write_scenes(tmp_path, dict(train=2, val=1))
    for path in root.glob('*/*.png'):
        cv2.imwrite(str(path), cv2.imread(str(path)).astype(np.uint16) * 16)
    with pytest.raises(UsageError, match=r'own\.tile=96: tiles of 16 bits'):
        own_config(root, tile=96)


def test_small_objects_get_a_line(tmp_path: Path) -> None:
    root = write_scenes(tmp_path, dict(train=2, val=1), 600, 900, objects=20)
    cfg = own_config(root)
    assert (
        '100% of the training objects are smaller than 8 pixels at own.size=96'
        in cfg.own_data
    )
    assert 'or tiles of the images (own.tile)' in cfg.own_data
    assert 'smaller than 8' not in own_config(root, tile=96).own_data


def test_loading_processes_read_tiles(scenes: Path) -> None:
    """Files that were open before a fork are opened anew."""
    dataset = tiles_of(scenes)
    alone = [dataset[i]['inputs'] for i in range(12)]
    loader = DataLoader(
        dataset, batch_size=1, num_workers=2, collate_fn=lambda x: x[0]['inputs']
    )
    for one, other, _ in zip(alone, loader, range(12), strict=False):
        assert (one == other).all()
