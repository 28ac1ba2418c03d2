"""configs/own on images of four channels in 16 bits: settings, statistics, steps of training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmengine.runner import Runner

from helpers.bands import read_bands
from rope_dense.data.generated import ShapesSettings, write_shapes
from rope_dense.data.images.band_files import write_bands
from rope_dense.engine.train_loop import set_epoch
from rope_dense.project.load import load_config
from rope_dense.project.model import random_model
from rope_dense.utils.config_parts import nodes
from rope_dense.utils.errors import UsageError

rasterio = pytest.importorskip(
    'rasterio', reason="no rasterio: pip install -e '.[large]'"
)
pytestmark = pytest.mark.usefixtures('surroundings')
NAMES = ['red', 'green', 'blue', 'heat']


@pytest.fixture(scope='module')
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('own')
    write_shapes(
        folder, ShapesSettings(train=4, val=2, size=(64, 96), layouts=('warm',))
    )
    return folder / 'warm'


def load(data: Path, name: str = 'realtime', **settings: Any) -> Config:
    settings = (
        dict(data_root=data, epochs=10, batch_size=2, channels=NAMES, size=64)
        | settings
    )
    if name == 'semantic':
        settings = dict(classes=['background', 'warm', 'cold']) | settings
    return load_config(name, own=settings)


def images(data: Path) -> np.ndarray:
    files = sorted((data / 'images' / 'train').iterdir())
    return (
        np.stack([read_bands(file) for file in files]).reshape(-1, 4).astype(np.float64)
    )


def test_mean_and_deviation_are_of_the_images(data: Path) -> None:
    cfg = load(data)
    preprocessor = cfg.model.data_preprocessor
    np.testing.assert_allclose(preprocessor.mean, images(data).mean(0), rtol=1e-4)
    np.testing.assert_allclose(preprocessor.std, images(data).std(0), rtol=1e-4)
    assert str(preprocessor.mean) in cfg.own_data
    assert 'uint16' in cfg.own_data
    assert not preprocessor.bgr_to_rgb
    given = load(data, mean=[1, 2, 3, 4.5], std=[1, 1, 2, 2]).model.data_preprocessor
    assert given.mean == [1, 2, 3, 4.5]
    assert given.std == [1, 1, 2, 2]


def test_weights_start_from_the_colours_that_are_named(data: Path) -> None:
    backbone = load(data).model.backbone
    assert backbone.in_channels == 4
    assert backbone.init_cfg.channels == ['red', 'green', 'blue', 0]
    assert load(data, channels=4).model.backbone.init_cfg.channels == 'mean'
    assert load(data, channels=[4, 1]).model.backbone.in_channels == 2
    assert load(data, weights=None).model.backbone.init_cfg is None


def test_bands_can_be_chosen_and_shown(data: Path) -> None:
    def shown(**settings: Any) -> list[int]:
        return list(load(data, **settings).test_dataloader.dataset.pipeline[0].show)

    assert shown() == [0, 1, 2]
    assert shown(channels=['heat', 'blue', 'green', 'red']) == [3, 2, 1]
    assert shown(show=['heat', 'green', 'blue']) == [3, 1, 2]
    assert shown(show=[4]) == [3, 3, 3]
    assert shown(channels=[4, 1]) == [0, 0, 0]
    assert load(data, channels=[4, 1]).test_dataloader.dataset.pipeline[0].bands == [
        4,
        1,
    ]


def test_settings_are_read_from_text(data: Path) -> None:
    options = [f'own.data_root={data}', 'own.size=64', 'own.show=[heat, 1, 2]']
    for text in ('[red, green, blue, heat]', '4'):
        names = [] if text == '4' else [*options[2:]]
        cfg = load_config('realtime', [*options[:2], *names, f'own.channels={text}'])
        assert cfg.model.backbone.in_channels == 4
    cfg = load_config(
        'realtime', [*options, f'own.channels={NAMES}', 'own.std=[1, 2.5, 3, 4]']
    )
    assert cfg.model.data_preprocessor.std == [1, 2.5, 3, 4]


@pytest.mark.parametrize(
    'settings, said',
    [
        (dict(channels=0), 'own.channels'),
        (dict(channels=['a', 'a']), 'once'),
        (dict(channels=['a', 2]), 'either names or numbers'),
        (dict(channels=5), '4 bands, expected 5'),
        (dict(channels=[1, 7]), 'there is no band 7'),
        (dict(channels=None, show=[1]), 'own.show'),
        (dict(show=['nir']), 'own.show'),
        (dict(show=[1, 2]), 'own.show'),
        (dict(mean=[1, 2]), 'own.mean'),
        (dict(std=[1, 2, 3, 0]), 'own.std'),
        (dict(channels=4, separate_files=True), 'own.separate_files'),
    ],
)
def test_wrong_settings_are_refused(data: Path, settings: dict, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        load(data, **settings)
    assert '\n' not in str(caught.value)


@pytest.fixture
def writable(tmp_path: Path) -> Path:
    """Data whose files a test may change."""
    write_shapes(tmp_path / 'data', ShapesSettings(3, 1, (64, 96), layouts=('warm',)))
    return tmp_path / 'data' / 'warm'


def files_of(data: Path, split: str = 'train') -> list[Path]:
    return sorted((data / 'images' / split).iterdir())


def refusal(data: Path, **settings: Any) -> str:
    with pytest.raises(UsageError) as caught:
        load(data, **settings)
    assert '\n' not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    'split, place, change, said',
    [
        (
            'train',
            0,
            lambda x: x.astype(np.uint8),
            'pixels of uint8, other images have uint16',
        ),
        ('train', 2, lambda x: x[..., :3], '3 bands, expected 4'),
        ('val', 0, lambda x: x[..., :3], '3 bands, expected 4'),
        (
            'val',
            0,
            lambda x: x.astype(np.int16),
            'pixels of int16, other images have uint16',
        ),
    ],
)
def test_a_file_unlike_the_others_is_named(
    writable: Path, split: str, place: int, change: Any, said: str
) -> None:
    file = files_of(writable, split)[place]
    write_bands(file, change(read_bands(file)))
    assert f'{file}: {said}' in refusal(writable)


def test_a_band_that_is_not_there_is_named_with_its_file(writable: Path) -> None:
    file = files_of(writable)[1]
    write_bands(file, read_bands(file)[..., :3])
    assert f'{file}: 3 bands, there is no band 4' in refusal(writable, channels=[4, 1])


def test_bands_without_the_setting_are_no_pictures(writable: Path) -> None:
    file = files_of(writable)[0]
    write_bands(file, np.tile(read_bands(file), 3))
    assert f'{file}: 12 bands of uint16, no picture' in refusal(writable, channels=None)


def test_constant_channels_are_named(writable: Path) -> None:
    files = files_of(writable)
    blue = np.array([1, 1, 0, 1], np.uint16)
    write_bands(files[1], read_bands(files[1]) * blue)
    assert (
        f'blue is constant or missing in 1 of them, such as {files[1]}'
        in load(writable).own_data
    )
    for file in files:
        write_bands(file, read_bands(file) * blue)
    said = refusal(writable)
    assert 'channel blue is constant' in said
    assert str(files[0]) in said


def test_missing_pixels_do_not_count(writable: Path) -> None:
    files = [*files_of(writable), *files_of(writable, 'val')]
    for file in files:
        write_bands(file, read_bands(file).astype(np.float32))
    expected = load(writable).model.data_preprocessor.mean
    for file in files:
        pixels = read_bands(file)
        rows = np.full_like(pixels[:5], np.nan)
        write_bands(file, np.concatenate([rows, pixels[5:]]))
    found = load(writable).model.data_preprocessor.mean
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, expected, rtol=0.05)


def describe(file: Path, names: list[str]) -> None:
    with rasterio.open(file, 'r+') as raster:
        raster.descriptions = names


def test_bands_are_found_by_their_names(writable: Path) -> None:
    expected = load(writable, channels=[4, 1]).model.data_preprocessor.mean
    for file in [*files_of(writable), *files_of(writable, 'val')]:
        describe(file, ['Red', 'green', 'blue', 'heat'])
    cfg = load(writable, channels=['heat', 'red'])
    assert cfg.model.data_preprocessor.mean == expected
    assert cfg.test_dataloader.dataset.pipeline[0].bands == ['heat', 'red']
    assert load(writable, channels=['a', 'b', 'c', 'd']).model.backbone.in_channels == 4
    file = files_of(writable)[0]
    said = refusal(writable, channels=['red', 'green', 'blue', 'nir'])
    assert f'{file}: its bands are Red, green, blue, heat' in said
    assert 'nir' in said
    write_bands(file, read_bands(file)[..., ::-1])  # in another order, with its names
    describe(file, ['heat', 'blue', 'green', 'Red'])
    assert (
        load(writable, channels=['heat', 'red']).model.data_preprocessor.mean
        == expected
    )
    last = files_of(writable)[2]
    describe(last, ['heat', 'blue', 'green', 'x'])
    assert f'{last}: 4 bands (heat, blue, green, x), there is no band red' in refusal(
        writable, channels=['heat', 'red']
    )


def separated(data: Path, folder: Path, root: str) -> Path:
    """The data with a file for each channel: images/train/red/0.tif, images/train/heat/0.tif."""
    for split in ('train', 'val'):
        for file in sorted((data / 'images' / split).iterdir()):
            for index, name in enumerate(NAMES):
                place = folder / 'images' / split / name
                place.mkdir(parents=True, exist_ok=True)
                write_bands(place / file.name, read_bands(file)[..., [index]])
        content = json.loads((data / 'annotations' / f'{split}.json').read_text())
        for item in content['images']:
            item['file_name'] = f'red/{item["file_name"]}'
        (folder / 'annotations').mkdir(exist_ok=True)
        (folder / 'annotations' / f'{split}.json').write_text(json.dumps(content))
    return folder


def test_a_file_for_each_channel_is_the_same(data: Path, tmp_path: Path) -> None:
    folder = separated(data, tmp_path, 'red')
    one, four = load(data), load(folder, separate_files=True)
    assert one.model.data_preprocessor.mean == four.model.data_preprocessor.mean
    pixels = []
    with DefaultScope.overwrite_default_scope('mmdet'):
        for cfg in (one, four):
            dataset = Runner.build_dataloader(cfg.test_dataloader, seed=0).dataset
            pixels.append(dataset[0]['inputs'])
    assert torch.equal(*pixels)
    assert pixels[0].shape[0] == 4
    assert pixels[0][3].max() > 20000
    (lost,) = (folder / 'images' / 'val' / 'heat').glob('*0.tif')
    lost.unlink()
    assert f'{lost}: cannot be read' in refusal(folder, separate_files=True)


def in_one_folder(data: Path, folder: Path, labels: str) -> Path:
    """The data as scene0_red.tif, scene0_heat.tif ...; masks scene0.png, or scene0_red.txt."""
    for split in ('train', 'val'):
        for name in ('images', labels):
            (folder / name / split).mkdir(parents=True)
        for index, file in enumerate(files_of(data, split)):
            pixels, scene = read_bands(file), f'scene{index}'
            for channel, name in enumerate(NAMES):
                place = folder / 'images' / split / f'{scene}_{name}.tif'
                write_bands(place, pixels[..., [channel]])
            if labels == 'masks':
                mask = data / 'masks' / split / f'{file.stem}.png'
                (folder / 'masks' / split / f'{scene}.png').symlink_to(mask)
            else:
                text = f'{index % 2} 0.5 0.5 0.3 0.3\n'
                (folder / 'labels' / split / f'{scene}_red.txt').write_text(text)
    (folder / 'classes.txt').write_text(
        'warm\ncold\n' if labels == 'labels' else 'a\nwarm\ncold\n'
    )
    return folder


@pytest.mark.parametrize(
    'task, labels', [('semantic', 'masks'), ('realtime', 'labels')]
)
def test_files_of_all_channels_may_be_in_one_folder(
    data: Path, tmp_path: Path, task: str, labels: str
) -> None:
    folder = in_one_folder(data, tmp_path / 'x', labels)
    settings = dict(classes=None) if task == 'semantic' else {}
    cfg = load(folder, task, separate_files=True, **settings)
    expected = load(data, task).model.data_preprocessor
    assert cfg.model.data_preprocessor.mean == expected.mean
    assert 'without' not in cfg.own_data
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        dataset = Runner.build_dataloader(cfg.test_dataloader, seed=0).dataset
    assert len(dataset) == 2
    assert dataset[0]['inputs'].shape[0] == 4


def test_arrays_are_images_of_masks(data: Path, tmp_path: Path) -> None:
    for split in ('train', 'val'):
        (tmp_path / 'images' / split).mkdir(parents=True)
        (tmp_path / 'masks').mkdir(exist_ok=True)
        (tmp_path / 'masks' / split).symlink_to(data / 'masks' / split)
        for file in (data / 'images' / split).iterdir():
            np.save(tmp_path / 'images' / split / file.stem, read_bands(file))
    places = {
        split: [f'images/{split}', f'masks/{split}'] for split in ('train', 'val')
    }
    cfg = load(tmp_path, 'semantic', **places)
    assert (
        cfg.model.data_preprocessor.mean
        == load(data, 'semantic').model.data_preprocessor.mean
    )


def depths(data: Path, folder: Path) -> Path:
    """The images with depth maps: metres from 1 to 2."""
    for split in ('train', 'val'):
        (folder / 'depth' / split).mkdir(parents=True)
        (folder / 'images').mkdir(exist_ok=True)
        (folder / 'images' / split).symlink_to(data / 'images' / split)
        for file in (data / 'images' / split).iterdir():
            depth = np.linspace(1000, 2000, 64 * 96).reshape(64, 96).astype(np.uint16)
            cv2.imwrite(str(folder / 'depth' / split / f'{file.stem}.png'), depth)
    return folder


TASKS = [
    'detection',
    'instance',
    'oriented',
    'realtime',
    'realtime_masks',
    'semantic',
    'depth',
]
CASES = [
    *((task, 'published') for task in TASKS),
    ('realtime', 'light'),
    ('semantic', 'light'),
]


@pytest.mark.parametrize('task, augment', CASES)
def test_every_task_trains_on_four_channels(
    data: Path, tmp_path: Path, task: str, augment: str
) -> None:
    root = depths(data, tmp_path) if task == 'depth' else data
    cfg = load(root, task, backbone='tiny', weights=None, augment=augment)
    loader = cfg.train_dataloader
    loader.update(num_workers=0, persistent_workers=False)
    assert not [
        step for _, step in nodes(loader) if step.get('type') == 'LoadImageFromFile'
    ]
    set_epoch(2 if augment == 'published' else 0)
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        batch = next(iter(Runner.build_dataloader(loader, seed=0)))
        assert {image.shape[0] for image in batch['inputs']} == {4}
        if augment == 'published' and task in ('realtime', 'semantic'):
            model = random_model(cfg).train()
            prepared = model.data_preprocessor(batch, training=True)
            assert prepared['inputs'].abs().max() < 100  # normalised
            losses = model(**prepared, mode='loss')
            sum(x.sum() for name, x in model.parse_losses(losses)[1].items()).backward()
            assert model.backbone.patch_embed.proj.weight.grad[:, 3].abs().sum() > 0
    set_epoch(0)


@pytest.mark.parametrize('task', TASKS)
def test_every_task_trains_on_one_channel(
    data: Path, tmp_path: Path, task: str
) -> None:
    """OpenCV drops the axis of a single channel."""
    root = depths(data, tmp_path) if task == 'depth' else data
    cfg = load(root, task, backbone='tiny', weights=None, channels=[4])
    loader = cfg.train_dataloader
    loader.update(num_workers=0, persistent_workers=False)
    set_epoch(2)
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        dataset = Runner.build_dataloader(loader, seed=0).dataset
        for index in range(2 * len(dataset)):
            assert dataset[index % len(dataset)]['inputs'].shape[0] == 1
    set_epoch(0)
