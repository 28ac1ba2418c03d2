"""Positions in metres on own data: recipes, tiles and predictions pass on each image's distance."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from mmcv.transforms import LoadImageFromFile
from mmengine.config import Config, ConfigDict
from mmengine.dataset import Compose, pseudo_collate
from mmengine.registry import DATASETS, MODELS, DefaultScope
from mmengine.structures import BaseDataElement
from PIL import Image
from torch import nn

from rope_dense.backbones.vit import GROUND
from rope_dense.data.dense.batch import MultiScaleBatch
from rope_dense.data.ground import GroundDistance
from rope_dense.data.tiles.plan import TilePredictor
from rope_dense.predict import inferencer as inferencers
from rope_dense.project.load import load_config
from rope_dense.project.own.recipes import find_anew
from rope_dense.utils.errors import UsageError

rasterio = pytest.importorskip('rasterio', reason='no rasterio')
pytestmark = pytest.mark.usefixtures('surroundings')
DISTANCES = (0.5, 2.0)  # of the images of each split, 64 x 96 pixels


@pytest.fixture(scope='module')
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp('ground')
    for split in ('train', 'val'):
        for part in ('images', 'masks'):
            (root / part / split).mkdir(parents=True)
        for number, distance in enumerate(DISTANCES):
            form = dict(driver='GTiff', width=96, height=64, count=3, dtype='uint8')
            place = rasterio.Affine(distance, 0, 0, 0, -distance, 0)
            form |= dict(crs='EPSG:32632', transform=place)
            path = root / 'images' / split / f'{number}.tif'
            with rasterio.open(path, 'w', **form) as file:
                file.write(np.full((3, 64, 96), 90, np.uint8))
            mask = Image.fromarray(np.eye(64, 96, dtype=np.uint8))
            mask.save(root / 'masks' / split / f'{number}.png')
        entry = dict(bbox=[8, 8, 40, 40], category_id=1, area=1600, iscrowd=0)
        names = [f'images/{split}/{number}.tif' for number in (0, 1)]
        images = [
            dict(id=i, file_name=name, width=96, height=64)
            for i, name in enumerate(names)
        ]
        objects = [dict(entry, id=i + 1, image_id=i) for i in (0, 1)]
        classes = [dict(id=1, name='tree')]
        content = dict(images=images, annotations=objects, categories=classes)
        (root / f'{split}.json').write_text(json.dumps(content))
    return root


def load(data: Path, task: str = 'semantic', **settings: Any) -> Config:
    given = dict(data_root=data, epochs=1, batch_size=2, ground_distance=0.7, size=128)
    given |= dict(backbone='dinov3_tiny', weights=None)
    if task == 'semantic':
        given['classes'] = ['ground', 'tree']
    else:
        given |= dict(train='train.json', val='val.json')
    return load_config(task, own=given | settings)


@pytest.fixture
def scope() -> Iterator[None]:
    with DefaultScope.overwrite_default_scope('mmseg'):
        yield


def test_a_recipe_refers_to_the_mean_of_its_images(data: Path):
    cfg = load(data)
    # sqrt(0.5 x 2) metres, and 2 pixels of the input for each of the file
    assert cfg.model.backbone.ground_distance == pytest.approx(0.5)
    assert 'positions in metres: 0.5 m a pixel of the input' in cfg.own_data
    assert '0 of 2 images that were looked at have none of their own' in cfg.own_data
    assert cfg.model.test_cfg == dict(mode='whole')
    assert load(data, tile=32).model.backbone.ground_distance == pytest.approx(0.25)
    trained = load(data, backbone='small', weights='default')  # at 512 pixels
    assert trained.model.backbone.ground_distance == pytest.approx(0.125)


@pytest.mark.parametrize('split', ['train', 'val'])
@pytest.mark.parametrize('tile', [None, 32])
def test_each_sample_has_the_distance_of_its_input(
    data: Path, scope: None, split: str, tile: int | None
):
    cfg = load(data, tile=tile, augment='none')
    dataset = DATASETS.build(cfg[f'{split}_dataloader'].dataset)
    growth = 128 / (tile or 64)
    found = {}
    for index in range(len(dataset)):
        sample = dataset[index]['data_samples']
        found[Path(sample.img_path).name] = sample.ground_distance * growth
    assert found == {f'{i}.tif': pytest.approx(x) for i, x in enumerate(DISTANCES)}
    preprocessor = MODELS.build(cfg.model.data_preprocessor)
    batch = pseudo_collate([dataset[0], dataset[len(dataset) - 1]])
    images = preprocessor(batch, split == 'train')['inputs']
    expected = torch.tensor(DISTANCES) / growth
    torch.testing.assert_close(getattr(images, GROUND), expected)


def test_views_of_an_image_have_distances_of_their_own(data: Path, scope: None):
    cfg = load(data)
    dataset = DATASETS.build(dict(cfg.test_dataloader.dataset, pipeline=[]))
    views = Compose(cfg.tta_pipeline)(dataset.get_data_info(0))
    found = {round(view.ground_distance, 3) for view in views['data_samples']}
    sides = {view.img_shape[0] for view in views['data_samples']}
    assert found == {round(0.5 * 64 / side, 3) for side in sides} and len(sides) > 2


def test_a_batch_that_is_resized(data: Path):
    cfg = load(data, 'realtime', augment='light')
    with DefaultScope.overwrite_default_scope('mmdet'):
        dataset = DATASETS.build(cfg.train_dataloader.dataset)
        preprocessor = MODELS.build(cfg.model.data_preprocessor)
        batch = pseudo_collate([dataset[0], dataset[1]])
        with patch.object(MultiScaleBatch, 'forward', grown):
            images = preprocessor(batch, True)['inputs']
    assert images.shape[-2:] == (160, 160)
    # An image is stretched to a square; the mean of both axes counts.
    expected = torch.tensor(DISTANCES) * (64 * 96) ** 0.5 / 160
    torch.testing.assert_close(getattr(images, GROUND), expected)


def grown(self: MultiScaleBatch, images: torch.Tensor, samples: list) -> tuple:
    return self.resized(images, samples, 1.25)


def with_gsd(data: Path, root: Path, *values: object) -> Path:
    """A copy of the data whose COCO files give images a distance on the ground."""
    shutil.copytree(data, root)
    for split in ('train', 'val'):
        file = root / f'{split}.json'
        content = json.loads(file.read_text())
        for image, value in zip(content['images'], values, strict=True):
            image['gsd' if split == 'train' else 'GSD'] = value
        file.write_text(json.dumps(content))
    return root


def step_of(cfg: Config) -> GroundDistance:
    with DefaultScope.overwrite_default_scope('mmdet'):
        steps = Compose(cfg.test_dataloader.dataset.pipeline).transforms
    (step,) = [step for step in steps if isinstance(step, GroundDistance)]
    return step


@pytest.mark.parametrize('tile', [None, 48])
def test_gsd_of_coco_counts_before_the_transform(
    data: Path, tmp_path: Path, tile: int | None
):
    root = with_gsd(data, tmp_path / 'own', 0.125, None)
    cfg = load(root, 'realtime', augment='none', tile=tile)
    growth = 128 / (tile or 64)
    trained = (0.125 * 2.0) ** 0.5 / growth
    assert cfg.model.backbone.ground_distance == pytest.approx(trained)
    # Stretched to a square; the mean of both axes counts.
    growth = growth if tile else 128 / (64 * 96) ** 0.5
    for split in ('train', 'val'):
        with DefaultScope.overwrite_default_scope('mmdet'):
            dataset = DATASETS.build(cfg[f'{split}_dataloader'].dataset)
        found = {}
        for index in range(len(dataset)):
            sample = dataset[index]['data_samples']
            found[Path(sample.img_path).name] = sample.ground_distance * growth
        assert found == {'0.tif': pytest.approx(0.125), '1.tif': pytest.approx(2.0)}


def test_predictions_know_the_images_of_the_labels(data: Path, tmp_path: Path):
    root = with_gsd(data, tmp_path / 'own', 0.125, None)
    cfg = load(root, 'realtime', augment='none')
    step = step_of(cfg)
    for split in ('train', 'val'):
        assert step.find(root / f'images/{split}/0.tif') == 0.125
    assert step.find(data / 'images/val/0.tif') == 0.5  # of the same name
    unknown = tmp_path / '0.png'
    assert step.find(unknown) is None
    assert step.transform(dict(img_path=unknown))['ground_distance'] == 0.7
    model = Watched()
    file = root / 'images/val/0.tif'
    with DefaultScope.overwrite_default_scope('mmdet'):
        predict = TilePredictor(model, cfg, batch=1, report=lambda: None, file=file)
        assert len([*predict([np.zeros((64, 64, 3), np.uint8)])]) == 1
    assert model.distances == [0.0625]
    # Another data set is evaluated, and its labels are gone later.
    other = with_gsd(data, tmp_path / 'other', 4.0, 8.0)
    find_anew(cfg, str(other))
    assert step_of(cfg).find(other / 'images/val/1.tif') == 8.0
    assert step_of(cfg).find(root / 'images/val/0.tif') == 0.5
    for listing, _ in step_of_config(cfg).coco:
        Path(listing).unlink()
    assert step_of(cfg).find(other / 'images/val/1.tif') == 2.0


def step_of_config(cfg: Config) -> ConfigDict:
    steps = cfg.test_dataloader.dataset.pipeline
    return next(step for step in steps if step.type.endswith('GroundDistance'))


@pytest.mark.parametrize(
    'value, said',
    [
        (0, 'gsd in metres must be a finite number, 0.0001 or more, got 0.0'),
        (-0.3, 'gsd in metres must be a finite number, 0.0001 or more, got -0.3'),
        (1.3e-6, 'gsd in metres must be a finite number, 0.0001 or more, got 1.3e-06'),
        ('about 0.3', "gsd is 'about 0.3', which is no number"),
        (float('nan'), "gsd is 'nan', which is not finite"),
    ],
)
def test_a_wrong_gsd_is_refused_where_it_counts(
    data: Path, tmp_path: Path, value: object, said: str
):
    root = with_gsd(data, tmp_path / 'own', 0.3, value)
    with pytest.raises(UsageError) as caught:
        load(root, 'realtime', augment='none')
    place = f'train.json, image {root / "images/train/1.tif"}'
    assert str(caught.value) == f'{place}: {said}'
    load(root, 'realtime', augment='none', ground_distance=None)


@pytest.mark.parametrize(
    'head, distance', [('gsd:0.146', 0.146), ('GSD: null', 0.7), ('', 0.7)]
)
def test_the_head_of_a_dota_file(tmp_path: Path, head: str, distance: float):
    for split in ('train', 'val'):
        for part in ('images', 'labelTxt'):
            (tmp_path / split / part).mkdir(parents=True)
        Image.new('RGB', (64, 64)).save(tmp_path / split / 'images/a.png')
        lines = 'imagesource:GoogleEarth', head, '8 8 40 12 36 44 4 40 ship 0'
        label = tmp_path / split / 'labelTxt/a.txt'
        label.write_text('\n'.join(filter(None, lines)))
    settings = dict(train=None, val=None, augment='none')
    cfg = load(tmp_path, 'oriented', **settings)
    assert cfg.model.backbone.ground_distance == pytest.approx(distance / 2)
    sample = step_of(cfg).transform(dict(img_path=tmp_path / 'val/images/a.png'))
    assert sample['ground_distance'] == distance
    number = int(distance == 0.7)
    assert f'{number} of 1 images that were looked at have none' in cfg.own_data


class Watched(nn.Module):
    """A model that notes the distances that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.distances: list[float] = []

    def test_step(self, data: dict) -> list[BaseDataElement]:
        self.distances += [sample.ground_distance for sample in data['data_samples']]
        return data['data_samples']


def test_tiles_of_a_large_image(data: Path, scope: None):
    cfg, model = load(data), Watched()
    file = data / 'images/val/1.tif'
    predict = TilePredictor(model, cfg, batch=2, report=lambda: None, file=file)
    tiles = [np.zeros((64, 64, 3), np.uint8)] * 3
    assert len([*predict(tiles), *predict(tiles[:1], 2)]) == 4
    assert model.distances == [1.0, 1.0, 1.0, 2.0]


def test_a_prediction_takes_the_distance_of_its_file(data: Path):
    """Images are read before: the step is told the file of each."""
    step = GroundDistance(default=0.7)
    files = [data / 'images/val/1.tif', None, data / 'images/val/0.tif']
    found = []

    class Inferencer:
        pipeline = SimpleNamespace(transforms=[LoadImageFromFile(), step])
        model = SimpleNamespace()
        cfg = load(data)

        def __call__(self, images: list, **settings: Any) -> BaseDataElement:
            for _ in images:
                found.append(step.transform(dict(img_path=None))['ground_distance'])
            return [BaseDataElement() for _ in images]

    images = [np.zeros((64, 64, 3), np.uint8)] * 3
    with patch.object(inferencers, 'patch_size', return_value=16):
        assert len(inferencers.predict_batch(Inferencer(), images, 3, files)) == 3
        inferencers.predict_batch(Inferencer(), images, 3)  # of a video
    assert found == [2.0, 0.7, 0.5, 0.7, 0.7, 0.7]


@pytest.mark.parametrize(
    'task, settings, said',
    [
        ('detection', {}, 'windows of detection and instance take no'),
        ('realtime', dict(mosaic=True), 'mosaics, which own.mosaic=False leaves out'),
        (
            'semantic',
            dict(ground_distance=0),
            'own.ground_distance must be a finite number, more',
        ),
        (
            'adapt',
            dict(val=None),
            'own.ground_distance: not for pictures without labels',
        ),
    ],
)
def test_what_is_refused(data: Path, task: str, settings: dict, said: str):
    with pytest.raises(UsageError, match=said):
        load(data, task, **settings)
