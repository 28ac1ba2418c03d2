"""Commands on images of four channels in 16 bits: pictures, predictions, large images."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmengine.registry import DefaultScope
from PIL import Image

import rope_dense
from helpers.bands import read_bands
from rope_dense.data.generated import ShapesSettings, write_shapes
from rope_dense.data.images.band_files import write_bands
from rope_dense.data.images.bands import LoadBands, picture, shrink
from rope_dense.data.tiles.band_image import BandImage
from rope_dense.export.trained import push_model
from rope_dense.project.load import load_config
from rope_dense.project.model import random_model
from rope_dense_command import command

rasterio = pytest.importorskip(
    'rasterio', reason="no rasterio: pip install -e '.[large]'"
)
pytestmark = pytest.mark.usefixtures('surroundings')
NAMES = ['red', 'green', 'blue', 'heat']
SPLIT = 30  # columns without data
Files = tuple[str, str]  # config and weights
SMALL = dict(
    backbone=dict(
        arch=dict(embed_dims=32, depth=4, num_heads=2), out_indices=(0, 1, 2, 3)
    ),
    neck=dict(embed_dim=32),
    decode_head=dict(in_channels=[32] * 4, channels=32),
    auxiliary_head=dict(in_channels=32, channels=32),
)


@pytest.fixture(scope='module')
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('channels')
    write_shapes(
        folder, ShapesSettings(train=3, val=2, size=(64, 96), layouts=('warm',))
    )
    return folder / 'warm'


def model_files(task: str, data: Path, folder: Path, **own: object) -> Files:
    """A config and random weights, which depend on the fourth channel."""
    settings = dict(
        data_root=data, channels=NAMES, size=64, weights=None, backbone='tiny', **own
    )
    with DefaultScope.overwrite_default_scope('mmengine'):
        cfg = load_config(task, own=settings)
        if task == 'semantic':
            cfg.model.backbone.arch = {}
            cfg.merge_from_dict(dict(model=SMALL))
        cfg.work_dir = str(folder / 'work')
        cfg.dump(folder / 'config.py')
        torch.manual_seed(0)
        weights = random_model(cfg).state_dict()
    meta = dict(dataset_meta=cfg.test_dataloader.dataset.metainfo.to_dict())
    torch.save(dict(state_dict=weights, meta=meta), folder / 'weights.pth')
    return str(folder / 'config.py'), str(folder / 'weights.pth')


@pytest.fixture(scope='module')
def segmentor(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp('segmentor')
    return model_files('semantic', data, folder, classes=['background', 'warm', 'cold'])


@pytest.fixture(scope='module')
def detector(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Files:
    return model_files('realtime', data, tmp_path_factory.mktemp('detector'))


def run(name: str, *arguments: object) -> int:
    return command(name)([*map(str, arguments)])


def test_predictions_are_drawn_on_what_is_shown(
    detector: Files, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / 'in'
    folder.mkdir()
    (good,) = sorted((data / 'images' / 'val').iterdir())[:1]
    pixels = read_bands(good)
    write_bands(folder / 'a.tif', pixels)
    np.save(folder / 'b.npy', pixels)
    write_bands(folder / 'c.tif', pixels[..., :3])
    assert (
        run('predict', *detector, folder, '--out', tmp_path / 'out', '--score', '0.001')
        == 0
    )
    assert f'{folder / "c.tif"}: 3 bands, expected 4' in capsys.readouterr().out
    content = json.loads((tmp_path / 'out' / 'predictions.json').read_text())
    assert [image['file_name'] for image in content['images']] == ['a.tif', 'b.npy']
    found = [
        [
            (x['bbox'], x['score'])
            for x in content['annotations']
            if x['image_id'] == image
        ]
        for image in (1, 2)
    ]
    assert found[0] == found[1] != []
    drawn = cv2.imread(str(tmp_path / 'out' / 'pictures' / 'a.jpg'))
    expected = picture(pixels)
    assert drawn.shape == expected.shape
    assert np.abs(drawn.astype(int) - expected).mean() < 60


def test_python_predicts_files_and_arrays(
    segmentor: Files, data: Path, tmp_path: Path
) -> None:
    model = rope_dense.load(*segmentor)
    (file,) = sorted((data / 'images' / 'val').iterdir())[:1]
    pixels = read_bands(file)
    labels = [model.plain(sample)['labels'] for sample in model([file, pixels])]
    assert np.array_equal(*labels)
    changed = pixels.copy()
    changed[..., 3] = 0
    logits = [sample.seg_logits.data for sample in model([pixels, changed])]
    assert not torch.allclose(*logits)
    with pytest.raises(ValueError, match=r'expected \[height, width, 4\]'):
        model(pixels[..., :3])


def test_samples_and_reports_have_pictures(
    segmentor: Files, data: Path, tmp_path: Path
) -> None:
    assert (
        run('browse_data', segmentor[0], '--count', '1', '--out', tmp_path / 'samples')
        == 0
    )
    (sample,) = (tmp_path / 'samples').glob('*.png')
    assert cv2.imread(str(sample)).std() > 20
    sizes = ['--sizes', '64', '96', '--work-dir', tmp_path / 'sizes']
    assert run('eval_resolutions', *segmentor, *sizes) == 0
    assert run('report', *segmentor, '--out', tmp_path / 'report') == 0
    assert 'not drawn' not in (tmp_path / 'report' / 'index.html').read_text()


def test_a_large_image_is_predicted_in_tiles(
    segmentor: Files, detector: Files, data: Path, tmp_path: Path
) -> None:
    (file,) = sorted((data / 'images' / 'val').iterdir())[:1]
    write_bands(tmp_path / 'large.tif', np.tile(read_bands(file), (2, 2, 1)))
    out, drawn = tmp_path / 'labels.tif', tmp_path / 'drawn.jpg'
    options = ['--tile', '64', '--picture', drawn]
    assert (
        run('predict_large', *segmentor, tmp_path / 'large.tif', '--out', out, *options)
        == 0
    )
    with rasterio.open(out) as labels:
        assert labels.shape == (128, 192)
    assert cv2.imread(str(drawn)).shape == (128, 192, 3)
    out = tmp_path / 'boxes.json'
    assert (
        run('predict_large', *detector, tmp_path / 'large.tif', '--out', out, *options)
        == 0
    )
    assert 'annotations' in json.loads(out.read_text())


def test_a_stored_model_predicts_the_same(
    segmentor: Files, data: Path, tmp_path: Path
) -> None:
    push_model(*segmentor, 'somebody/channels', folder=tmp_path / 'stored')
    (file,) = sorted((data / 'images' / 'val').iterdir())[:1]
    stored, given = rope_dense.load(tmp_path / 'stored'), rope_dense.load(*segmentor)
    samples = [model(file)[0].seg_logits.data for model in (stored, given)]
    assert torch.equal(*samples)


def write_as(kind: str, folder: Path, pixels: np.ndarray) -> Path:
    """Pixels [H, W, 6] as a TIFF, a file or a page for each band, or an array."""
    if kind == 'files':
        for index, name in enumerate('abcdef'):
            write_bands(folder / f'x_{name}.tif', pixels[..., [index]])
        return folder / 'x_a.tif'
    if kind == 'array':
        np.save(folder / 'all.npy', pixels)
        return folder / 'all.npy'
    if kind == 'pages':
        cv2.imwritemulti(str(folder / 'all.tif'), [*np.moveaxis(pixels, 2, 0)])
    else:
        write_bands(folder / 'all.tif', pixels)
    return folder / 'all.tif'


@pytest.mark.parametrize('kind', ['bands', 'pages', 'files', 'array'])
@pytest.mark.parametrize('factor', [1, 3])
def test_rows_are_those_of_the_loader(tmp_path: Path, kind: str, factor: int) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 60000, (50, 31, 6)).astype(np.uint16)
    path = write_as(kind, tmp_path, pixels)
    names = [f'x_{name}' for name in 'abcdef'] if kind == 'files' else None
    bands = LoadBands(6, names=names, dtype='uint16', fill=[0.0] * 6)
    image = BandImage(path, bands, factor)
    whole = np.pad(
        bands.load(path), ((0, -50 % factor), (0, -31 % factor), (0, 0)), mode='edge'
    )
    assert np.array_equal(whole[:50, :31], pixels)
    if factor > 1:
        whole = shrink(whole, whole.shape[1] // factor, whole.shape[0] // factor)
    for top, bottom in ((0, 9), (4, 12), (image.height - 5, image.height)):
        np.testing.assert_allclose(
            image.read(top, bottom), whole[top:bottom], rtol=1e-6
        )
    with pytest.raises(ValueError, match='expected 5'):
        BandImage(path, LoadBands(5, names=names))
    with pytest.raises(ValueError, match='uint16'):
        BandImage(path, LoadBands(6, names=names, dtype='uint8'))


def test_nothing_is_predicted_without_data(
    segmentor: Files, detector: Files, data: Path, tmp_path: Path
) -> None:
    (file,) = sorted((data / 'images' / 'val').iterdir())[:1]
    pixels = np.maximum(read_bands(file), 1)  # [64, 96, 4]
    pixels[:, :SPLIT] = 0
    path = tmp_path / 'x.tif'
    write_bands(path, pixels)
    with rasterio.open(path, 'r+') as image:
        image.nodata = 0
    assert run('predict', *segmentor, path, '--out', tmp_path / 'masks') == 0
    labels = np.asarray(Image.open(tmp_path / 'masks' / 'labels' / 'x.png'))
    large = tmp_path / 'labels.tif'
    drawn = ['--tile', '48', '--picture', tmp_path / 'drawn.jpg']
    assert run('predict_large', *segmentor, path, '--out', large, *drawn) == 0
    with rasterio.open(large) as raster:
        assert raster.nodata == 255
        for found in (labels, raster.read(1)):
            assert (found[:, :SPLIT] == 255).all()
            assert found[:, SPLIT:].max() < 3
    assert cv2.imread(str(tmp_path / 'drawn.jpg'))[:, : SPLIT - 10].max() < 30
    found = ['--score', '0.001', '--out', tmp_path / 'boxes']
    assert run('predict', *detector, path, *found) == 0
    large = tmp_path / 'large.json'
    found = ['--score', '0.001', '--out', large, '--tile', '48']
    assert run('predict_large', *detector, path, *found) == 0
    for result in (tmp_path / 'boxes' / 'predictions.json', large):
        boxes = np.array(
            [x['bbox'] for x in json.loads(result.read_text())['annotations']]
        )
        assert len(boxes)
        assert (boxes[:, 0] + boxes[:, 2] / 2).min() >= SPLIT
