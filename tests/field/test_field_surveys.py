"""All masks and depth maps are looked at, and none is decoded that its header refuses."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any
from zlib import compressobj, crc32

import cv2
import numpy as np
import pytest
from mmengine.config import Config
from PIL import Image

from helpers.field import SIZE, image, mask, write
from helpers.grid import CONFIGS
from rope_dense.data.depth_maps import depth_lines, survey_depths
from rope_dense.data.images.headers import read_header
from rope_dense.data.mask_labels import label_map, survey_masks
from rope_dense.project.checks.data import check_data
from rope_dense.project.load import load_config, with_data_root
from rope_dense.utils.errors import UsageError

pytestmark = pytest.mark.usefixtures('surroundings')
GREY = np.resize([0, 1], SIZE).astype(np.uint8)


def said_of(path: Path, classes: tuple[str, ...] = ('bg', 'road')) -> str:
    """The line that refuses one mask beside an image of SIZE; '' if it is taken."""
    picture = image(path.parent / 'images' / 'a.jpg')
    try:
        survey_masks([(picture, path)], 'train', label_map(classes), classes)
    except ValueError as error:
        assert '\n' not in str(error) and str(path) in str(error)
        return str(error)
    return ''


def large_png(path: Path, side: int) -> Path:
    """A PNG of zeros, of 1 bit and `side` x `side` pixels: 437 kB for 60,000."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack('>I', len(data))
            + name
            + data
            + struct.pack('>I', crc32(name + data))
        )

    packer, row = compressobj(9), bytes(1 + side // 8)
    data = (
        b''.join(packer.compress(row * 1000) for _ in range(side // 1000))
        + packer.flush()
    )
    header = struct.pack('>IIBBBBB', side, side, 1, 0, 0, 0, 0)
    content = chunk(b'IHDR', header) + chunk(b'IDAT', data) + chunk(b'IEND', b'')
    return write(path, b'\x89PNG\r\n\x1a\n' + content)


def test_k8_a_small_file_of_many_pixels_is_refused_by_its_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = large_png(tmp_path / 'a.png', 60_000)
    monkeypatch.setattr(Image.Image, 'load', lambda *_: pytest.fail('decoded'))
    assert path.stat().st_size < 500_000
    picture = tmp_path / 'b.jpg'
    write(picture, cv2.imencode('.jpg', np.zeros((*SIZE, 3), np.uint8))[1].tobytes())
    for pair in ((picture, path), (path, picture), (path, path)):
        with pytest.raises(
            ValueError, match=r'differ in size, \(|60000 x 60000 pixels'
        ):
            survey_masks([pair], 'train', label_map('ab'), 'ab')
        with pytest.raises(
            ValueError, match=r'differ in size, \(|60000 x 60000 pixels'
        ):
            survey_depths([pair], 'train', 1.0, None)


def test_f3_a_mask_of_several_pages_is_refused(tmp_path: Path) -> None:
    """A page per class; smaller copies, which GDAL adds, are no pages."""
    pages = [Image.fromarray(GREY), Image.fromarray(1 - GREY)]
    pages[0].save(tmp_path / 'two.tif', save_all=True, append_images=pages[1:])
    assert 'two.tif has 2 pages: save one page, the mask of its image' in said_of(
        tmp_path / 'two.tif'
    )
    pages[0].save(tmp_path / 'two.gif', save_all=True, append_images=pages[1:])
    assert 'two.gif has 2 pages' in said_of(tmp_path / 'two.gif')
    pages[0].save(tmp_path / 'one.tif')
    assert said_of(tmp_path / 'one.tif') == ''


def test_f3_overviews_and_masks_of_transparency_are_no_pages(tmp_path: Path) -> None:
    rasterio = pytest.importorskip('rasterio')
    path = tmp_path / 'a.tif'
    about = dict(driver='GTiff', width=SIZE[1], height=SIZE[0], count=1, dtype='uint8')
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
        with rasterio.open(path, 'w', **about) as file:
            file.write(GREY[None])
        with rasterio.open(path, 'r+') as file:
            file.build_overviews([2, 4])
            file.write_mask(True)
    assert said_of(path) == ''


def test_a_mask_of_the_image_before_its_rotation_is_refused(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[274] = 6
    picture = image(tmp_path / 'a.jpg', SIZE, exif=exif)  # shown as 40 x 30
    pairs = [(picture, mask(tmp_path / 'a.png', GREY))]
    with pytest.raises(
        ValueError, match=r'a\.png has the size of .*a\.jpg before its EXIF'
    ):
        survey_masks(pairs, 'train', label_map('ab'), 'ab')
    mask(tmp_path / 'a.png', GREY.T)
    survey_masks(pairs, 'train', label_map('ab'), 'ab')


def test_f10_bands_that_are_no_mask_are_named(tmp_path: Path) -> None:
    rasterio = pytest.importorskip('rasterio')
    for kind, count, says in (
        ('float64', 1, '1 band of float64'),
        ('uint8', 2, '2 bands of uint8'),
    ):
        path = tmp_path / f'{kind}.tif'
        about = dict(
            driver='GTiff', width=SIZE[1], height=SIZE[0], count=count, dtype=kind
        )
        with rasterio.open(path, 'w', **about) as file:
            file.write(np.stack([GREY] * count).astype(kind))
        assert (
            f'cannot be read as a mask ({says}): save class numbers as one'
            in said_of(path)
        )


def semantic(root: Path, masks: list[list[int]], classes: str, *options: str) -> Config:
    """The recipe of a data set with these numbers in the training masks."""
    for split, numbers in (('train', masks), ('val', masks[:1])):
        for index, some in enumerate(numbers):
            image(root / f'images/{split}/{index:03}.jpg')
            mask(
                root / f'masks/{split}/{index:03}.png', np.resize(np.uint8(some), SIZE)
            )
    write(root / 'classes.txt', classes)
    given = [f'own.data_root={root}', 'own.weights=None', 'own.size=64', *options]
    return load_config(str(CONFIGS / 'own' / 'semantic.py'), given)


def test_f5_numbers_of_ade_are_refused_with_the_cause(tmp_path: Path) -> None:
    """0 is void and names begin with 1; the highest class is in one of 301 masks."""
    masks = [[0, 1]] * 300 + [[0, 2]]
    with pytest.raises(UsageError) as error:
        semantic(tmp_path / 'a', masks, 'road\ncar\n')
    assert str(error.value).endswith(
        'masks/train/300.png has 2 (in 1 of 301 masks): the masks have 0 to 2 for 2 names: is 0 '
        "'unlabelled'? Put its name first (classes.txt, own.classes) and own.void=[0]"
    )
    cfg = semantic(tmp_path / 'b', masks[-20:], 'void\nroad\ncar\n', 'own.void=[0]')
    check_data(cfg, ('train_dataloader', 'val_dataloader'))


def test_f5_the_last_name_without_a_pixel_is_said(tmp_path: Path) -> None:
    cfg = semantic(tmp_path, [[0, 1]] * 3, 'road\ncar\nbus\n')
    assert (
        "1 of 3 classes have no pixel in 3 training masks: bus (is 0 'unlabelled'? Put its name "
        'first and own.void=[0])'
    ) in cfg.own_data


def test_numbers_that_are_no_class_are_counted(tmp_path: Path) -> None:
    for index, numbers in enumerate(([0, 1], [0, 9], [7, 9])):
        mask(tmp_path / f'masks/{index}.png', np.resize(np.uint8(numbers), SIZE))
    pairs = [
        (image(tmp_path / 'a.jpg'), path)
        for path in sorted((tmp_path / 'masks').iterdir())
    ]
    with pytest.raises(
        ValueError, match=r'1\.png has 9: neither .*\(in 2 of 3 masks; also 7\)'
    ):
        survey_masks(pairs, 'train', label_map('ab'), 'ab')
    noise = np.random.default_rng(0).integers(0, 60_000, SIZE).astype(np.uint16)
    mask(tmp_path / 'masks/0.png', noise)  # depths: the other masks are not read
    with pytest.raises(
        ValueError, match=r'0\.png has .* \.\.\.: neither .*\(in 1 of 3 masks\)'
    ):
        survey_masks(pairs, 'train', label_map('ab'), 'ab')


def depths(root: Path, *maps: Any) -> list[tuple[Path, Path]]:
    """An image and an array for each map."""
    root.mkdir(parents=True, exist_ok=True)
    pairs = []
    for index, values in enumerate(maps):
        np.save(root / f'{index:03}.npy', np.broadcast_to(np.asarray(values), SIZE))
        pairs.append((image(root / f'{index:03}.jpg'), root / f'{index:03}.npy'))
    return pairs


def test_all_depth_maps_are_looked_at(tmp_path: Path) -> None:
    pairs = depths(
        tmp_path, *[2000.0] * 29, np.resize([0.0, 1000.0, 9000.0, 9000.0], SIZE)
    )
    survey = json.loads(json.dumps(survey_depths(pairs, 'train', 0.001, 10.0)))
    assert survey['maps'] == 30 and survey['unknown'] == pytest.approx(1 / 120)
    assert depth_lines(survey) == ['depths of 1 to 9 m, median 2 m (30 files)']


def test_few_maps_that_are_odd_are_said_and_many_are_refused(tmp_path: Path) -> None:
    """One picture of the sky does not end a training; maps of another unit do."""
    pairs = depths(tmp_path / 'few', *[2000.0] * 20, 0.0, 2.0)
    assert depth_lines(survey_depths(pairs, 'train', 0.001, 10.0))[1:] == [
        '1 x depth map without a known depth: 020.npy',
        '1 x depth map of a median out of range: 021.npy',
    ]
    for values, says in (
        (
            2.0,
            r'003\.npy has a median depth of 0\.002 m, and max_depth is 10 m \(2 of 5 maps',
        ),
        (np.nan, r'003\.npy has no known depth: .*\(2 of 5 maps\)'),
    ):
        pairs = depths(tmp_path / 'many', 2000.0, 2000.0, 2000.0, values, values)
        with pytest.raises(ValueError, match=says):
            survey_depths(pairs, 'train', 0.001, 10.0)


def test_depths_above_the_largest_and_one_that_repeats_are_said(
    tmp_path: Path,
) -> None:
    """65535 where a sensor measured nothing."""
    some = np.linspace(1000, 5000, SIZE[0] * SIZE[1]).reshape(SIZE)
    clipped = np.where(some > 4000, 65535.0, some)
    share = (clipped > 10000).mean()
    survey = survey_depths(depths(tmp_path, clipped, clipped, some), 'train', 0.001, 10)
    assert depth_lines(survey)[1:] == [
        f'{share * 2 / 3:.2%} of the depths are above own.max_depth: neither trained '
        'nor evaluated',
        f'{share * 2 / 3:.0%} of the depths are the largest, 65.5 m: where '
        'nothing was measured, store 0',
    ]


def header_of_array(shape: str) -> bytes:
    """The header of a .npy file of float32."""
    text = (
        f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape}), }}\n".encode()
    )
    return b'\x93NUMPY\x01\x00' + struct.pack('<H', len(text)) + text


ARRAYS = {
    'of 10^12 numbers': header_of_array('1000000, 1000000'),
    'cut off': header_of_array('30, 40') + b'abc',
    'of 5,000 digits': header_of_array('9' * 5000 + ', 40'),
    'nested': b'\x93NUMPY\x01\x00' + struct.pack('<H', 9000) + b'(' * 9000,
}


@pytest.mark.parametrize('kind', ARRAYS)
def test_k8_an_array_larger_than_its_file_is_named(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / 'a.npy', ARRAYS[kind])
    with pytest.raises(
        ValueError, match=r'a\.npy cannot be read as a depth map'
    ) as error:
        survey_depths([(image(tmp_path / 'a.jpg'), path)], 'train', 1.0, 10.0)
    assert '\n' not in str(error.value) and len(str(error.value)) < 300
    with pytest.raises(
        ValueError, match=r'a\.npy: cannot be read as an array'
    ) as error:
        read_header(path)
    assert '\n' not in str(error.value) and len(str(error.value)) < 300


@pytest.mark.parametrize('interleave', ['pixel', 'band'])
def test_a_depth_map_of_several_bands_is_refused(
    tmp_path: Path, interleave: str
) -> None:
    """Of bands without a colour tag OpenCV takes the first, or none of them."""
    rasterio = pytest.importorskip('rasterio')
    size = dict(height=SIZE[0], width=SIZE[1], count=3, dtype='uint16')
    with rasterio.open(
        tmp_path / 'a.tif', 'w', driver='GTiff', interleave=interleave, **size
    ) as f:
        f.write(np.full((3, *SIZE), 500, np.uint16))
    with pytest.raises(
        ValueError, match=r'a\.tif has 3 bands; a depth map has one channel'
    ):
        survey_depths(
            [(image(tmp_path / 'a.jpg'), tmp_path / 'a.tif')], 'train', 0.01, 10.0
        )


NO_DEPTH = {
    'objects': np.array([None, 1], object),
    'complex': np.ones(SIZE, complex),
    'truth values': np.ones(SIZE, bool),
    'colours': np.ones((*SIZE, 3), np.float32),
    'another size': np.ones((SIZE[0], 7), np.float32),
}


@pytest.mark.parametrize('kind', NO_DEPTH)
def test_arrays_that_are_no_depth_are_named(tmp_path: Path, kind: str) -> None:
    np.save(tmp_path / 'a.npy', NO_DEPTH[kind])
    with pytest.raises(
        ValueError, match=r'a\.npy.*(cannot be read|one channel|differ in size)'
    ):
        survey_depths(
            [(image(tmp_path / 'a.jpg'), tmp_path / 'a.npy')], 'train', 1.0, 10.0
        )


def evaluated(root: str, ann_file: str, **dataset: Any) -> Config:
    data = dict(data_root=root, ann_file='annotations/val.json', **dataset)
    return Config(
        dict(
            test_dataloader=dict(dataset=data),
            test_evaluator=dict(type='CocoMetric', ann_file=ann_file),
        )
    )


def test_d16_an_evaluator_moves_with_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Absolute, with dots, or through a link: the same folder, however it is written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'data/coco').mkdir(parents=True)
    (tmp_path / 'link').symlink_to(tmp_path / 'data')
    file = 'coco/annotations/val.json'
    for root, given in (
        ('data/coco/', f'{tmp_path}/data/{file}'),
        (f'{tmp_path}/data/coco', f'data/{file}'),
        ('data/x/../coco', f'./data/{file}'),
        ('link/coco', f'data/{file}'),
    ):
        moved = with_data_root(evaluated(root, given), 'new')
        assert moved.test_evaluator.ann_file == 'new/annotations/val.json'
        assert moved.test_dataloader.dataset.ann_file == 'annotations/val.json'
    prefix = dict(img=f'{tmp_path}/data/coco/val2017', seg='panoptic/')
    cfg = evaluated('data/coco/', f'data/{file}', data_prefix=prefix)
    cfg.test_evaluator.seg_prefix = 'data/coco/panoptic/'
    moved = with_data_root(cfg, 'new')
    prefix = moved.test_dataloader.dataset.data_prefix
    assert prefix == dict(img='new/val2017', seg='panoptic/')
    assert moved.test_evaluator.seg_prefix == 'new/panoptic'


def test_d16_a_file_that_would_stay_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r'^--data-root new: test_evaluator\.ann_file=old/val\.js'
    ):
        with_data_root(evaluated('data/coco/', 'old/val.json'), 'new')
    cfg = evaluated(
        'data/coco/', 'new/labels/val.json'
    )  # by --cfg-options, which come first
    assert with_data_root(cfg, 'new').test_evaluator.ann_file == 'new/labels/val.json'
    cfg.test_dataloader.dataset.ann_file = '/labels/val.json'
    with pytest.raises(
        UsageError, match=r'test_dataloader\.dataset\.ann_file=/labels/val\.json'
    ):
        with_data_root(cfg, 'new')


def test_own_data_are_not_parsed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A canonical file has what the checks of other files look for; classes are compared."""
    for split in ('train', 'val'):
        image(tmp_path / f'images/{split}/a.jpg')
        write(tmp_path / f'labels/{split}/a.txt', '0 0.5 0.5 0.2 0.2\n')
    write(tmp_path / 'classes.txt', 'cat\n')
    given = [f'own.data_root={tmp_path}', 'own.weights=None']
    cfg = load_config(str(CONFIGS / 'own' / 'detection.py'), given)
    loaders = 'train_dataloader', 'val_dataloader'
    with monkeypatch.context() as patch:
        patch.setattr(
            'rope_dense.project.checks.data.build_dataset',
            lambda *_, **__: pytest.fail('built'),
        )
        patch.setattr('mmengine.load', lambda *_, **__: pytest.fail('parsed'))
        check_data(cfg, loaders)
        cfg.model.bbox_head.num_classes = 3
        with pytest.raises(
            UsageError, match=r'bbox_head\.num_classes=3, but .* has 1 classes'
        ):
            check_data(cfg, loaders)
        cfg.model.bbox_head.num_classes = 1
    cfg.train_dataloader.dataset.filter_cfg.min_size = 1000
    with pytest.raises(
        UsageError, match=r'no image is left; check its files, filter_cfg'
    ):
        check_data(cfg, loaders)
