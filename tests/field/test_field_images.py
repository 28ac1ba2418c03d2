"""Images as files: headers, what a picture is, and pixels as another reader has them."""

from __future__ import annotations

import json
import struct
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import astuple
from itertools import product
from pathlib import Path
from typing import Any

import cv2
import mmcv
import numpy as np
import pytest
from PIL import Image

from helpers.field import files, image, reading
from helpers.grid import CONFIGS
from rope_dense.data.images.band_files import channel_files, is_first
from rope_dense.data.images.bands import LoadBands, LoadDeepImage
from rope_dense.data.images.headers import Header, read_header
from rope_dense.data.images.pictures import check_picture
from rope_dense.data.images.sources import find_video, left_out_text, read_image
from rope_dense.data.tiles.image_file import LargeImage
from rope_dense.project.load import load_config
from rope_dense.project.own.images import survey_pictures
from rope_dense.utils.errors import UsageError

rasterio = pytest.importorskip(
    'rasterio', reason="no rasterio: pip install -e '.[large]'"
)
COLOURS = (200, 100, 50, 128, 30)  # red, green, blue, near infrared, and one more
HEIGHT, WIDTH = 40, 70


def bands_of(number: int, dtype: str) -> np.ndarray:
    """[n, H, W]: a gradient on each colour, 20 times as large in 16 bits."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH] // 4
    pixels = np.stack([colour - 30 + rows + columns for colour in COLOURS[:number]])
    return (pixels * (20 if '16' in dtype else 1)).astype(dtype)


def tiff(path: Path, pixels: np.ndarray, **profile: Any) -> Path:
    """Write bands [n, H, W] by GDAL."""
    count, height, width = pixels.shape
    size = dict(height=height, width=width, count=count, dtype=pixels.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        with rasterio.open(path, 'w', driver='GTiff', **size, **profile) as file:
            file.write(pixels)
            if profile.get('photometric') == 'palette':
                file.write_colormap(
                    1, {i: (i, 255 - i, i * 7 % 256, 255) for i in range(256)}
                )
    return path


def expected_of(path: Path) -> np.ndarray:
    """Pixels of a TIFF by GDAL, [H, W, 3] of blue, green and red."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        with rasterio.open(path) as file:
            pixels = file.read()
            if file.colorinterp[0].name == 'palette':
                table = np.zeros((256, 3), np.uint8)
                for value, colour in file.colormap(1).items():
                    table[value] = colour[:3]
                pixels = np.moveaxis(table[pixels[0]], 2, 0)
            elif file.tags(ns='IMAGE_STRUCTURE').get('MINISWHITE') == 'YES':
                pixels = 255 - pixels
    pixels = pixels[:3] if len(pixels) > 2 else pixels[:1].repeat(3, 0)
    return np.moveaxis(pixels, 0, 2)[..., ::-1].astype(int)


def layouts(bands: int, dtype: str) -> Iterator[dict[str, Any]]:
    """Profiles of GDAL's TIFF driver."""
    tags = (None, 'minisblack', 'miniswhite', *(['rgb'] if bands > 2 else []))
    tags += ('palette',) if (bands, dtype) == (1, 'uint8') else ()
    packed = ('none', 'lzw', 'deflate', *(['jpeg'] if dtype == 'uint8' else []))
    for tag, interleave, compress, tiled in product(
        tags, ('pixel', 'band'), packed, (False, True)
    ):
        if compress == 'jpeg' and (
            tag == 'palette' or (bands > 4 and interleave == 'pixel')
        ):
            continue
        tiles = dict(tiled=True, blockxsize=16, blockysize=32) if tiled else {}
        photometric = dict(photometric=tag) if tag else {}
        yield dict(interleave=interleave, compress=compress, **tiles, **photometric)


@pytest.mark.parametrize('dtype', ['uint8', 'uint16', 'int16', 'uint32', 'float32'])
@pytest.mark.parametrize('bands', [1, 2, 3, 4, 5])
def test_f1_a_tiff_is_read_as_gdal_reads_it_or_refused(
    bands: int, dtype: str, tmp_path: Path
) -> None:
    """One band was grey 16 times too dark, and colours were multiplied by near infrared."""
    read = 0
    for number, profile in enumerate(layouts(bands, dtype)):
        path = tiff(tmp_path / f'{number}.tif', bands_of(bands, dtype), **profile)
        try:
            pixels = read_image(path, 4095)
        except ValueError as error:
            assert f'{path}: {bands} band' in str(error) and 'no picture' in str(error)
            continue
        expected = expected_of(path)
        if dtype == 'uint16':
            expected = np.floor(expected * (255 / 4095) + 0.5)
        error = np.abs(pixels - expected).max()
        assert error <= (12 if profile['compress'] == 'jpeg' else 0), profile
        read += 1
    may_be_read = {('uint8', 1), ('uint8', 3), ('uint16', 1), ('uint16', 3)}
    assert (read > 0) == ((dtype, bands) in may_be_read)


LINES = {
    'four bands': (4, 'uint16', {}, 'own.channels=4'),
    'rasterio': (3, 'uint16', {}, 'own.channels=[1, 2, 3]'),
    'planes': (
        3,
        'uint16',
        dict(photometric='rgb', interleave='band'),
        'band after band',
    ),
    'infrared tagged as alpha': (4, 'uint8', {}, 'other values than 0 and full'),
    'infrared without a tag': (4, 'uint8', dict(photometric='rgb'), 'own.channels=4'),
    'grey': (4, 'uint8', dict(photometric='minisblack'), 'tagged as grey'),
    'two': (2, 'uint8', {}, 'own.channels=2'),
    'int16': (1, 'int16', {}, '1 band of int16, no picture: give own.channels=1'),
    'uint32': (1, 'uint32', {}, 'convert it to one of uint8'),
    'sparse': (
        3,
        'uint8',
        dict(photometric='rgb', sparse_ok=True, compress='lzw'),
        'sparse',
    ),
    'zstd': (3, 'uint8', dict(photometric='rgb', compress='zstd'), 'compression: zstd'),
}


@pytest.mark.parametrize('case', LINES)
def test_f1_the_line_says_what_reads_the_file(case: str, tmp_path: Path) -> None:
    bands, dtype, profile, said = LINES[case]
    pixels = bands_of(bands, dtype) * (case != 'sparse')  # of zeros GDAL writes nothing
    path = tiff(tmp_path / 'a.tif', pixels, **profile)
    only_opencv = case in ('planes', 'sparse', 'zstd')  # misreads it
    for read in (read_image,) if only_opencv else (read_image, LargeImage):
        with pytest.raises(ValueError) as caught:
            read(path)
        assert str(caught.value).startswith(f'{path}: {bands} band')
        assert said in str(caught.value) and '\n' not in str(caught.value)
    if dtype != 'uint32':
        assert LoadBands(bands).load(path).shape == (HEIGHT, WIDTH, bands)


@pytest.mark.parametrize('dtype', ['uint8', 'uint16'])
def test_an_alpha_of_a_tiff_is_nothing_but_0_and_full(
    dtype: str, tmp_path: Path
) -> None:
    pixels = bands_of(4, dtype)
    pixels[3] = np.iinfo(dtype).max
    path = tiff(tmp_path / 'a.tif', pixels, photometric='rgb', alpha='yes')
    opaque = read_image(path, 255 if dtype == 'uint8' else 4095)
    assert (
        np.abs(
            opaque[0, 0] - np.array([20, 70, 170]) * (1 if dtype == 'uint8' else 1.245)
        ).max()
        < 1
    )
    pixels[3, :, :9] = 0
    check_picture(path, read_header(tiff(path, pixels, photometric='rgb', alpha='yes')))
    pixels[3, -1, -1] = 7
    with pytest.raises(ValueError, match='other values than 0 and full'):
        check_picture(
            path, read_header(tiff(path, pixels, photometric='rgb', alpha='yes'))
        )


def test_large_images_read_the_pictures_that_prediction_reads(tmp_path: Path) -> None:
    """GDAL does not invert where 0 is white, and does not turn a TIFF."""
    inverted = tiff(tmp_path / 'a.tif', bands_of(1, 'uint8'), photometric='miniswhite')
    turned = tmp_path / 'b.tif'
    Image.fromarray(np.moveaxis(bands_of(3, 'uint8'), 0, 2)).save(
        turned, tiffinfo={274: 6}
    )
    for path in (inverted, turned):
        large = LargeImage(path)
        assert np.array_equal(large.read(0, large.height), read_image(path))
    packed = dict(photometric='rgb', compress='zstd')
    path = tiff(tmp_path / 'c.tif', bands_of(3, 'uint8'), **packed)
    assert np.array_equal(LargeImage(path).read(0, HEIGHT), expected_of(path))


def test_bigtiff_and_16_bits_by_content_and_orientation(tmp_path: Path) -> None:
    """A PNG of 16 bits may be called .jpg, and OpenCV turns a TIFF in memory only."""
    big = tiff(
        tmp_path / 'a.tif', bands_of(3, 'uint8'), photometric='rgb', bigtiff='YES'
    )
    assert big.read_bytes()[2] == 43
    assert np.array_equal(read_image(big), expected_of(big))
    grey = bands_of(1, 'uint16')[0]
    Image.fromarray(grey).save(tmp_path / 'b.tif', tiffinfo={274: 6, 281: 4095})
    header = read_header(tmp_path / 'b.tif')
    assert (header.height, header.width, header.orientation) == (WIDTH, HEIGHT, 6)
    assert header.max_value == 4095
    scaled = np.floor(grey * (255 / 4095) + 0.5)
    turned = read_image(tmp_path / 'b.tif', 4095)
    assert np.array_equal(turned[..., 0], np.rot90(scaled, -1))
    cv2.imwrite(str(tmp_path / 'c.png'), grey)
    path = (tmp_path / 'c.png').rename(tmp_path / 'c.jpg')
    loaded = LoadDeepImage(4095).transform(
        dict(img_path=str(path), img=mmcv.imread(str(path)))
    )
    assert np.array_equal(loaded['img'][..., 0], scaled)


def test_pages_are_counted_and_said(tmp_path: Path) -> None:
    """F3: the first page of several was taken without a word; overviews are no pages."""
    pages = [Image.new('RGB', (20, 10), colour) for colour in ('red', 'blue')]
    for name in ('a.tif', 'b.gif', 'c.webp'):
        pages[0].save(tmp_path / name, save_all=True, append_images=pages[1:])
    overviews = tiff(
        tmp_path / 'd.tif', np.zeros((3, 600, 600), np.uint8), photometric='rgb'
    )
    with rasterio.open(overviews, 'r+') as file:
        file.build_overviews([2, 4])
    headers = {path: read_header(path) for path in sorted(tmp_path.iterdir())}
    assert [header.pages for header in headers.values()] == [2, 2, 2, 1]
    survey = survey_pictures(headers, None)
    assert [place for _, place in survey['notes']] == ['a.tif', 'b.gif', 'c.webp']
    assert all('the first is taken' in kind for kind, _ in survey['notes'])


def test_headers_and_surveys_are_json(tmp_path: Path) -> None:
    nodata = tiff(tmp_path / 'a.tif', bands_of(4, 'int16'), nodata=-9999)
    header = read_header(nodata)
    assert header.no_data == '-9999' and header.dtype == 'int16' and header.bands == 4
    assert Header(*json.loads(json.dumps(astuple(header)))) == header
    np.save(tmp_path / 'b.npy', np.zeros((10, 20, 7), np.float32))
    array = read_header(tmp_path / 'b.npy')
    assert (array.height, array.width, array.bands, array.dtype) == (
        10,
        20,
        7,
        'float32',
    )
    deep = tiff(tmp_path / 'c.tif', bands_of(1, 'uint16'))
    survey = survey_pictures({deep: read_header(deep)}, None)
    assert (
        survey
        == json.loads(json.dumps(survey))
        == dict(white=4095, deep=True, backend=None, notes=[])
    )


@pytest.mark.parametrize('place', [0, 1, 70])
def test_f9_every_image_is_asked(place: int, tmp_path: Path) -> None:
    """The first image stood for all."""
    paths = [image(tmp_path / f'{number:03}.png') for number in range(71)]
    tiff(tmp_path / 'bad.tif', bands_of(5, 'uint8')).rename(paths[place])
    headers = {path: read_header(path) for path in paths}
    with pytest.raises(
        ValueError, match=rf'{paths[place].name}: 5 bands of uint8, no picture'
    ):
        survey_pictures(headers, None)


@pytest.mark.usefixtures('surroundings')
def test_m3_a_recipe_is_refused_for_one_image_among_many(tmp_path: Path) -> None:
    """ "cannot identify image file" was all that was said of a TIFF of 4 x 16 bits."""
    names = [f'{split}/{number}' for split in ('train', 'val') for number in range(3)]
    given = {f'{name.replace("/", "/labels/")}.txt': '0 .5 .5 .5 .5' for name in names}
    root = files(tmp_path / 'data', {**given, 'data.yaml': 'names: [cat]'})
    for name in names:
        image(root / f'{name.replace("/", "/images/")}.png')
    (root / 'val/images/1.png').unlink()
    bands = tiff(root / 'val/images/1.tif', bands_of(4, 'uint16'))
    options = [f'own.data_root={root}', 'own.weights=None', 'own.size=64']
    with pytest.raises(UsageError, match=r'no picture: give own\.channels=4') as caught:
        load_config(str(CONFIGS / 'own' / 'realtime.py'), options)
    assert f'{bands}: 4 bands of uint16' in str(caught.value)
    assert '\n' not in str(caught.value)


CUT = {
    'jpg': {},
    'png': {},
    'webp': {},
    'bmp': {},
    'gif': {},
    'tif': {},
    'tiff': dict(compression='tiff_lzw'),
}


@pytest.mark.parametrize('suffix', CUT)
@pytest.mark.parametrize('share', [0.2, 0.6, 0.95])
def test_d7_a_file_that_is_cut_off_is_left_out(
    suffix: str, share: float, tmp_path: Path
) -> None:
    """TIFF, BMP and GIF passed, and ended the first epoch."""
    given = {
        f'{split}/{kind}/{name}{end}': text
        for split, names in (('train', 'abc'), ('val', 'de'))
        for name in names
        for kind, end, text in (
            ('images', '.jpg', None),
            ('labels', '.txt', '0 .5 .5 .5 .5'),
        )
    }
    files(tmp_path, {**given, 'data.yaml': 'names: [cat]'})
    path = tmp_path / f'train/images/a.{suffix}'
    noise = np.random.default_rng(0).integers(0, 255, (30, 40, 3), np.uint8)
    (tmp_path / 'train/images/a.jpg').unlink()
    Image.fromarray(noise).save(path, **CUT[suffix])
    assert [*reading(tmp_path).objects['train']] == [path.name, 'b.jpg', 'c.jpg']
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    found = reading(tmp_path)
    assert [*found.objects['train']] == ['b.jpg', 'c.jpg']
    assert (
        f'1 x image that cannot be read (left out with its objects): {path.name}'
        in found.text
    )
    with pytest.raises(ValueError, match=path.name):
        read_image(path)


def png(path: Path, side: int, rows: int, bits: int) -> Path:
    """A black grey PNG that says more rows than it may have."""
    packer = zlib.compressobj(9)
    row = bytes(1 + side * bits // 8)
    data = b''.join(packer.compress(row) for _ in range(rows)) + packer.flush()
    content = b'\x89PNG\r\n\x1a\n'
    header = struct.pack('>IIBBBBB', side, side, bits, 0, 0, 0, 0)
    for name, chunk in ((b'IHDR', header), (b'IDAT', data), (b'IEND', b'')):
        crc = struct.pack('>I', zlib.crc32(name + chunk))
        content += struct.pack('>I', len(chunk)) + name + chunk + crc
    path.write_bytes(content)
    return path


def test_k8_small_files_of_many_pixels_are_refused_by_their_header(
    tmp_path: Path,
) -> None:
    """10 GB were decoded, or a file of ten rows passed as 10^10 pixels."""
    with pytest.raises(ValueError, match=r'a\.png: is cut off'):
        read_header(png(tmp_path / 'a.png', 100_000, 10, 8))
    path = png(tmp_path / 'b.png', 60_000, 60_000, 1)
    assert path.stat().st_size < 500_000
    headers = {path: read_header(path)}
    for refused in (lambda: read_image(path), lambda: survey_pictures(headers, None)):
        with pytest.raises(
            ValueError, match=r'b\.png: 60000 x 60000 pixels.*predict-large'
        ):
            refused()
    assert not LargeImage(path).read(0, 2).any()


@pytest.mark.parametrize(
    'path, names, first, second',
    [
        ('r/tree_01_r.tif', ['r', 'g'], True, 'r/tree_01_g.tif'),
        ('r/tree_01.tif', ['r', 'g'], True, 'g/tree_01.tif'),
        ('a-red.tif', ['red', 'nir'], True, 'a-nir.tif'),
        ('scene red 2.tif', ['red', 'nir'], True, 'scene nir 2.tif'),
        ('near_ir/a.tif', ['ir', 'near_ir'], False, ''),
        ('coloured/a.tif', ['red', 'nir'], False, ''),
        ('a_nir.tif', ['red', 'nir'], False, ''),
    ],
)
def test_d11_the_name_of_a_channel_is_a_part_of_the_path(
    path: str, names: list[str], first: bool, second: str
) -> None:
    """/data/r/tree_01.tif became /data/r/tgee_01.tif."""
    root = Path('/data/red')
    assert is_first(root / path, names, root) == first
    if first:
        assert channel_files(root / path, names) == [root / path, root / second]
    assert not is_first(root / 'a.tif', ['red', 'nir'], root)


def test_f11_what_a_folder_has_and_prediction_does_not_read_is_named(
    tmp_path: Path,
) -> None:
    for name in (
        'a.jpg',
        'b.ppm',
        'deep/c.ppm',
        'd.jp2',
        'e.mp4',
        'f.mpg',
        'notes.txt',
        'x.npy',
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('x')
    said = left_out_text(tmp_path, ('.jpg',))
    assert said == '2 videos (give each alone), 1 .jp2, 1 .npy, 2 .ppm'
    assert left_out_text(tmp_path, ('.jpg', '.npy')) == said.replace('1 .npy, ', '')
    assert left_out_text(tmp_path / 'a.jpg', ('.jpg',)) == ''
    with pytest.raises(
        ValueError, match=r'f\.mpg: OpenCV reads no frame of this video'
    ):
        find_video(str(tmp_path / 'f.mpg'))
