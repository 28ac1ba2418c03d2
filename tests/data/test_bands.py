"""Images of any number of channels: files, loading, augmentation, preprocessing, pictures."""

import random
import warnings
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmdet.structures.bbox import HorizontalBoxes
from mmengine.registry import MODELS
from PIL import Image

from rope_dense.data.dense.mosaic import AffineMosaic
from rope_dense.data.images.band_files import is_first, read_band_header
from rope_dense.data.images.bands import (
    BandJitter,
    IgnoreNoData,
    LoadBands,
    picture,
    shrink,
)
from rope_dense.data.loading import LoadError, NamingPipeline

rasterio = pytest.importorskip(
    'rasterio', reason="no rasterio: pip install -e '.[large]'"
)
HEIGHT, WIDTH = 20, 30


def pixels_of(bands: int, dtype: str, seed: int = 0) -> np.ndarray:
    """[H, W, n] with values that 8 bits do not have."""
    values = np.random.default_rng(seed).integers(1, 120, (HEIGHT, WIDTH, bands))
    return (values * (1 if dtype == 'uint8' else 257)).astype(dtype)


def write(path: Path, pixels: np.ndarray, nodata: float | None = None) -> Path:
    if path.suffix == '.npy':
        np.save(path, pixels)
        return path
    height, width, count = pixels.shape
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        profile = dict(
            driver='GTiff', height=height, width=width, count=count, nodata=nodata
        )
        with rasterio.open(path, 'w', dtype=pixels.dtype, **profile) as file:
            file.write(np.moveaxis(pixels, 2, 0))
    return path


def load(path: Path, channels: int, **options: object) -> dict:
    return NamingPipeline([LoadBands(channels, **options)])(dict(img_path=str(path)))


@pytest.mark.parametrize('suffix', ['.tif', '.npy'])
@pytest.mark.parametrize('dtype', ['uint8', 'uint16', 'int16', 'float32'])
@pytest.mark.parametrize('bands', [1, 2, 3, 4, 13])
def test_all_bands_and_bits_reach_the_model(bands, dtype, suffix, tmp_path):
    pixels = pixels_of(bands, dtype) - (200 if dtype == 'int16' else 0)
    path = write(tmp_path / f'a{suffix}', pixels)
    results = load(path, bands, dtype=dtype)
    assert results['img'].dtype == np.float32
    assert np.array_equal(results['img'], pixels)
    assert results['img_shape'] == results['ori_shape'] == (HEIGHT, WIDTH)
    assert 'no_data' not in results
    header = read_band_header(path)
    assert (header.height, header.width, header.bands) == (HEIGHT, WIDTH, bands)
    assert header.dtype == dtype


def test_pages_are_bands(tmp_path):
    pixels = pixels_of(6, 'uint16')
    cv2.imwritemulti(str(tmp_path / 'a.tif'), [*np.moveaxis(pixels, 2, 0)])
    assert np.array_equal(load(tmp_path / 'a.tif', 6)['img'], pixels)
    assert read_band_header(tmp_path / 'a.tif').bands == 6


def test_chosen_bands_and_files_of_single_bands(tmp_path):
    pixels = pixels_of(5, 'uint16')
    path = write(tmp_path / 'a.tif', pixels)
    assert np.array_equal(load(path, 2, bands=[5, 2])['img'], pixels[..., [4, 1]])
    (tmp_path / 'red').mkdir()  # the last place in the path counts
    for index, name in enumerate(('red', 'nir')):
        write(tmp_path / 'red' / f'a_{name}.tif', pixels[..., [index]])
    loaded = load(tmp_path / 'red' / 'a_red.tif', 2, names=['red', 'nir'])
    assert np.array_equal(loaded['img'], pixels[..., :2])


@pytest.mark.parametrize(
    'path, first',
    [
        ('red/x.tif', True),
        ('x_infrared.tif', False),  # the longer of two names
        ('red/x_nir.tif', False),  # the last
        ('nir/x_red.tif', True),
        ('x.tif', False),
    ],
)
def test_the_name_in_a_path_says_the_channel(path, first):
    assert is_first(Path(path), ['red', 'infrared', 'nir']) == first
    assert is_first(Path(path), [])


def test_missing_values_are_filled_and_have_no_labels(tmp_path):
    pixels = pixels_of(3, 'uint16')
    pixels[0, 0, 1] = 7
    pixels[1, 2] = 7
    path = write(tmp_path / 'a.tif', pixels, nodata=7)
    results = load(path, 3, fill=[1.5, 2.5, 3.5])
    assert results['img'][0, 0].tolist() == [pixels[0, 0, 0], 2.5, pixels[0, 0, 2]]
    assert results['img'][1, 2].tolist() == [1.5, 2.5, 3.5]
    assert np.argwhere(results['no_data']).tolist() == [[1, 2]]
    labels = np.ones((HEIGHT, WIDTH), np.uint8)
    labelled = dict(results, gt_seg_map=labels, gt_depth_map=labels)
    ignored = IgnoreNoData().transform(labelled)
    assert ignored['gt_seg_map'][1, 2] == 255
    assert ignored['gt_seg_map'].sum() == HEIGHT * WIDTH - 1 + 255
    assert labels.all()
    assert ignored['gt_depth_map'].sum() == HEIGHT * WIDTH - 1
    floats = pixels.astype(np.float32)
    floats[3, 4] = np.nan
    nan = load(write(tmp_path / 'a.npy', floats), 3, fill=[1.5, 2.5, 3.5])
    assert nan['img'][3, 4].tolist() == [1.5, 2.5, 3.5]
    assert nan['no_data'][3, 4]


def infinite(path: Path) -> Path:
    pixels = pixels_of(3, 'float32')
    pixels[0, 0, 0] = np.inf
    return write(path, pixels)


def mixed_sizes(folder: Path) -> Path:
    write(folder / 'nir.tif', pixels_of(1, 'uint16')[:5])
    return write(folder / 'red.tif', pixels_of(1, 'uint16'))


def mixed_pages(path: Path) -> Path:
    pages = [Image.new('L', (WIDTH, HEIGHT)), Image.new('RGB', (WIDTH, HEIGHT))]
    pages[0].save(path, save_all=True, append_images=pages[1:])
    return path


BAD = {
    'another number': (
        lambda f: write(f / 'a.tif', pixels_of(5, 'uint16')),
        {},
        '5 bands, expec',
    ),
    'other bits': (
        lambda f: write(f / 'a.tif', pixels_of(3, 'uint8')),
        {},
        'uint8, other images',
    ),
    'no such band': (
        lambda f: write(f / 'a.tif', pixels_of(3, 'uint16')),
        dict(bands=[1, 2, 4]),
        'no band 4',
    ),
    'infinite': (lambda f: infinite(f / 'a.tif'), dict(dtype=None), 'infinite pixels'),
    'unknown type': (
        lambda f: write(f / 'a.npy', np.zeros((4, 4, 3), np.complex64)),
        {},
        'pixels of complex64',
    ),
    'no image': (
        lambda f: (f / 'a.tif').write_text('x') and f / 'a.tif',
        {},
        'cannot be read',
    ),
    'no array': (
        lambda f: (f / 'a.npy').write_text('x') and f / 'a.npy',
        {},
        'cannot be read',
    ),
    'no file': (lambda f: f / 'a.tif', {}, 'cannot be read'),
    'files of other sizes': (
        mixed_sizes,
        dict(names=['red', 'nir']),
        '30 x 20, 30 x 5',
    ),
    'pages of other bands': (
        lambda f: mixed_pages(f / 'a.tif'),
        {},
        '30 x 20 x 1, 30 x 20 x 3',
    ),
    'another name': (
        lambda f: write(f / 'a.tif', pixels_of(1, 'uint16')),
        dict(names=['XX', 'nir']),
        "has no 'XX'",
    ),
}


@pytest.mark.parametrize('case', BAD)
def test_bad_files_are_named_in_one_line(case, tmp_path):
    make, options, said = BAD[case]
    path = make(tmp_path)
    with pytest.raises(LoadError) as caught:
        load(path, 3, **{'dtype': 'uint16', **options})
    message = str(caught.value)
    assert said in message
    assert str(path) in message
    assert '\n' not in message


@pytest.mark.parametrize('channels', [1, 3, 4, 7])
def test_preprocessors_normalise_each_channel(channels):
    images = [torch.rand(channels, 16, 16) * 1000 for _ in range(2)]
    mean, std = np.arange(1.0, channels + 1), np.arange(2.0, channels + 2)
    for name in ('ChannelDetDataPreprocessor', 'ChannelSegDataPreProcessor'):
        settings = dict(type=name, mean=mean.tolist(), std=std.tolist())
        out = MODELS.build(settings)(dict(inputs=images))['inputs']
        for image, given in zip(out, images, strict=True):
            for band in range(channels):
                torch.testing.assert_close(
                    image[band], (given[band] - mean[band]) / std[band]
                )
    with pytest.raises(ValueError, match=f'{channels + 1} channels'):
        MODELS.build(settings)(dict(inputs=[torch.rand(channels + 1, 8, 8)]))
    with pytest.raises(ValueError, match='std'):
        MODELS.build(dict(settings, std=[0.0] * channels))


def test_channel_preprocessor_equals_mmdets_for_three_channels():
    settings = dict(mean=[1.0, 2.0, 3.0], std=[4.0, 5.0, 6.0], pad_size_divisor=32)
    image = [torch.rand(3, 20, 40)]
    ours, theirs = (
        MODELS.build(dict(settings, type=name))(dict(inputs=image))['inputs']
        for name in ('ChannelDetDataPreprocessor', 'mmdet.DetDataPreprocessor')
    )
    assert torch.equal(ours, theirs)


def test_shrinking_takes_every_channel_as_alone():
    image = np.random.default_rng(0).random((40, 60, 13), np.float32)
    small = shrink(image, 17, 9)
    for band in range(13):
        alone = cv2.resize(image[..., band], (17, 9), interpolation=cv2.INTER_AREA)
        assert np.array_equal(small[..., band], alone)


def test_jitter_changes_channels_on_their_own():
    random.seed(0)
    np.random.seed(0)
    image = np.ones((50, 50, 4), np.float32) * np.arange(1, 5, dtype=np.float32)
    image[:25] *= 3
    given = image.copy()
    brighter = BandJitter(contrast=(1, 1), noise=0, prob=1).transform(dict(img=image))[
        'img'
    ]
    ratios = brighter / given
    assert np.array_equal(image, given)  # a cached image may be used again
    assert np.allclose(ratios, ratios[:1, :1], rtol=1e-5)
    assert len(np.unique(ratios[0, 0])) == 4
    contrast = BandJitter(brightness=(1, 1), noise=0, prob=1).transform(
        dict(img=image)
    )['img']
    means = (x.mean((0, 1), np.float64) for x in (contrast, given))
    np.testing.assert_allclose(*means, rtol=1e-5)
    assert not np.allclose(contrast, given)
    noise = BandJitter((1, 1), (1, 1), noise=0.5, prob=1).transform(dict(img=image))[
        'img'
    ]
    assert 0 < np.std(noise - given) < given.std()


def test_mosaic_of_many_channels(tmp_path):
    random.seed(0)
    boxes = HorizontalBoxes(torch.tensor([[2.0, 3.0, 20.0, 15.0]]))
    part = dict(
        gt_bboxes=boxes, gt_bboxes_labels=np.array([1]), gt_ignore_flags=np.array([0])
    )
    image = pixels_of(6, 'uint16').astype(np.float32)
    mosaic = AffineMosaic(part_size=10, rotation=0, translation=(0, 0), scaling=(1, 1))
    out = mosaic.transform(dict(part, img=image))
    assert out['img'].shape == (20, 30, 6)
    assert out['img'].dtype == np.float32
    assert np.array_equal(out['img'][:10, :15], shrink(image, 15, 10))
    assert out['img'].max() > 255


def test_picture_shows_three_channels_by_percentiles():
    image = np.zeros((100, 100, 5), np.float32)
    image[..., 4] = np.linspace(-3000, 9000, 100)[:, None]
    image[..., 1] = np.linspace(5, 6, 100)
    shown = picture(image, (4, 1, 1))  # red, green, blue
    assert shown.shape == (100, 100, 3)
    assert shown.dtype == np.uint8
    assert [shown[0, 50, 2], shown[-1, 50, 2]] == [0, 255]
    assert 120 < shown[50, 0, 2] < 136
    assert [shown[50, 0, 0], shown[50, -1, 1]] == [0, 255]
