"""16-bit images in training, prediction and the recipe of configs/own."""

from __future__ import annotations

import re
from pathlib import Path

import cv2
import mmengine
import numpy as np
import pytest
from mmengine.config import Config
from mmengine.registry import DATASETS, DefaultScope
from PIL import Image

from helpers.grid import CONFIGS
from rope_dense.data.images.bands import LoadDeepImage, read_white_value, to_8_bits
from rope_dense.data.images.headers import read_header
from rope_dense.data.images.sources import ImageReader, read_image
from rope_dense.project.load import load_config

pytestmark = pytest.mark.usefixtures('surroundings')


def twelve_bits(*shape: int, seed: int = 0) -> np.ndarray:
    pixels = np.random.default_rng(seed).integers(0, 3000, shape, np.uint16)
    pixels[0, 0] = 3100  # the brightest needs 12 bits
    return pixels


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A COCO data set with grey 16-bit images of 12 used bits."""
    for split in ('train', 'val'):
        (tmp_path / split).mkdir()
        for index in range(3):
            cv2.imwrite(
                str(tmp_path / split / f'{index}.png'), twelve_bits(60, 80, seed=index)
            )
        images = [
            dict(id=i, file_name=f'{i}.png', height=60, width=80) for i in range(3)
        ]
        boxes = [
            dict(
                id=i,
                image_id=i,
                category_id=1,
                bbox=[5, 5, 30, 20],
                area=600,
                iscrowd=0,
            )
            for i in range(3)
        ]
        content = dict(
            images=images, annotations=boxes, categories=[dict(id=1, name='cell')]
        )
        mmengine.dump(content, tmp_path / 'annotations' / f'{split}.json')
    return tmp_path


@pytest.mark.parametrize('task', ['detection', 'realtime'])
def test_training_and_tests_see_the_bits_that_are_used(data: Path, task: str) -> None:
    options = [
        f'own.data_root={data}',
        'own.weights=None',
        'own.size=64',
        'own.augment=none',
    ]
    cfg = load_config(str(CONFIGS / 'own' / f'{task}.py'), options)
    assert cfg.own_data.endswith('16-bit images are scaled: 4095 is white')
    for split in ('train', 'test'):
        dataset = cfg[f'{split}_dataloader'].dataset
        with DefaultScope.overwrite_default_scope('mmdet'):
            pixels = DATASETS.build(dataset)[0]['inputs']
        assert pixels.float().mean() == pytest.approx(1500 / 4095 * 255, rel=0.05)
    assert ImageReader(cfg.test_dataloader.dataset.pipeline).max_value == 4095
    shown = read_image(data / 'train' / '0.png', 4095)
    assert shown.shape == (60, 80, 3) and shown.dtype == np.uint8
    assert (shown == to_8_bits(twelve_bits(60, 80), 4095)[..., None]).all()


def test_mosaics_see_them_too(data: Path) -> None:
    options = [
        f'own.data_root={data}',
        'own.weights=None',
        'own.max_value=1023',
        'own.mosaic=True',
    ]
    cfg = load_config(str(CONFIGS / 'own' / 'realtime.py'), options)
    stages = cfg.train_dataloader.dataset.pipeline[3]
    assert stages.transforms[1][0].transforms[0][0].max_value == 1023
    assert cfg.own_data.endswith('1023 is white')


def white(folder: Path) -> int | None:
    return read_white_value({path: read_header(path) for path in folder.iterdir()})


def test_ranges(tmp_path: Path) -> None:
    """What a TIFF says counts before its pixels; images of 8 bits do not."""
    assert white(tmp_path) is None
    cv2.imwrite(str(tmp_path / 'b.png'), twelve_bits(8, 8, 3))
    assert white(tmp_path) == 4095
    tags = {281: 16383}
    Image.fromarray(twelve_bits(8, 8)).save(tmp_path / 'c.tif', tiffinfo=tags)
    assert white(tmp_path) == 16383
    cv2.imwrite(str(tmp_path / 'd.png'), np.full((8, 8), 60000, np.uint16))
    assert white(tmp_path) == 65535
    cv2.imwrite(str(tmp_path / 'a.png'), np.zeros((8, 8), np.uint8))
    assert white(tmp_path) == 65535


def test_the_brightest_of_many_images_counts(tmp_path: Path) -> None:
    """Which a sample of 50 would miss."""
    for index in range(101):
        value = 4000 if index == 51 else 900
        cv2.imwrite(
            str(tmp_path / f'{index:03}.png'), np.full((4, 4), value, np.uint16)
        )
    assert white(tmp_path) == 4095


def own_config(data: Path, *options: str) -> Config:
    given = [f'own.data_root={data}', 'own.weights=None', 'own.size=64', *options]
    return load_config(str(CONFIGS / 'own' / 'realtime.py'), given)


def test_validation_images_count_too(data: Path) -> None:
    bright = np.full((60, 80), 60000, np.uint16)
    cv2.imwrite(str(data / 'val' / '1.png'), bright)
    assert own_config(data).own_data.endswith('scaled: 65535 is white')


def test_a_white_value_without_16_bits_is_for_predictions(data: Path) -> None:
    for path in data.glob('*/*.png'):
        cv2.imwrite(str(path), (cv2.imread(str(path), -1) // 16).astype(np.uint8))
    cfg = own_config(data, 'own.max_value=4095')
    said = 'no image has 16 bits; in those that are predicted, 4095 will be white'
    assert cfg.own_data.endswith(said)
    assert ImageReader(cfg.test_dataloader.dataset.pipeline).max_value == 4095


@pytest.mark.parametrize(
    'white, factor, said',
    [
        (
            None,
            1,
            'which is white: give own.max_value',
        ),
        (None, 20, ''),
        (4095, 1, ''),
        (
            4095,
            20,
            '% of them are above 4095, which is white',
        ),
        (65535, 1, 'its values end at 3100, 0% of them are above 65535'),
    ],
)
def test_pictures_of_another_range_are_said(
    white: int | None,
    factor: int,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Once; a black one and one of 8 bits are of no range."""
    steps = [dict(type='LoadDeepImage', max_value=white)] if white else []
    reader = ImageReader(steps)
    dim = np.full((9, 9), 3, np.uint8)
    cv2.imwrite(str(tmp_path / 'a.png'), dim)
    cv2.imwrite(str(tmp_path / 'b.png'), dim.astype(np.uint16) * 0)
    for name in ('c.png', 'd.png'):
        cv2.imwrite(str(tmp_path / name), twelve_bits(60, 80) * factor)
    for path in sorted(tmp_path.iterdir()):
        reader.read(path)
    text = capsys.readouterr().out
    assert said in text and text.count('\n') == bool(said)
    assert text.startswith(f'{tmp_path}/c.png: 16 bits of another') is bool(said)


def test_8_bits_and_arrays_stay(tmp_path: Path) -> None:
    step, image = LoadDeepImage(4095), np.full((4, 4, 3), 7, np.uint8)
    cv2.imwrite(str(tmp_path / 'a.png'), image)
    for path in (str(tmp_path / 'a.png'), None):
        assert step.transform(dict(img=image, img_path=path))['img'] is image
    values = np.array([0, 1, 8, 9, 2047, 4095, 65535], np.uint16)
    assert to_8_bits(values, 4095).tolist() == [0, 0, 0, 1, 127, 255, 255]


@pytest.mark.parametrize(
    'array, said',
    [
        (
            np.ones((8, 6, 3), np.uint16),
            'array of uint16 and shape [8, 6, 3]: expected',
        ),
        (
            np.full((8, 6, 3), 0.5, np.float32),
            'float32 and shape [8, 6, 3]: expected',
        ),
        (np.full((8, 6, 3), 256.0), 'float64 and shape [8, 6, 3]'),
        (np.full((8, 6, 3), np.nan), 'floats from 0 to 255'),
        (np.ones((8, 6, 3), np.int64), 'int64 and shape'),
        (np.ones((8, 6, 3), bool), 'bool and shape'),
        (
            np.ones((8, 6), np.uint8),
            'uint8 and shape [8, 6]: expected [height, width, 3]',
        ),
        (np.ones((8, 6, 1), np.uint8), 'shape [8, 6, 1]'),
        (np.ones((8, 6, 4), np.uint8), 'shape [8, 6, 4]'),
        (np.ones((3, 8, 6), np.uint8), 'shape [3, 8, 6]'),
        (np.ones((2, 8, 6, 3), np.uint8), 'shape [2, 8, 6, 3]'),
        (
            b'\xff\xd8',
            'image of type bytes: give a path, an array or',
        ),
        (Image.new('I;16', (6, 8)), 'a picture of mode I;16: give its path'),
    ],
)
def test_arrays_of_another_type_or_shape_are_refused(array: object, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        ImageReader([]).convert(array)


def test_arrays_of_8_bits_and_of_floats_are_one() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 6, 3), np.uint8)
    for given in (
        pixels,
        pixels.astype(np.float32),
        Image.fromarray(pixels[..., ::-1]),
    ):
        converted = ImageReader([]).convert(given)
        assert converted.dtype == np.uint8 and np.array_equal(converted, pixels)


def test_images_of_channels_have_their_order() -> None:
    """A picture of Pillow has red, green and blue, whatever own.channels says."""
    reader = ImageReader([dict(type='LoadBands', channels=4)])
    array = np.ones((8, 6, 4), np.uint16)
    assert reader.convert(array) is array
    for given in (array[..., :3], array.astype(bool), Image.new('RGBA', (6, 8))):
        with pytest.raises(ValueError, match='array'):
            reader.convert(given)
