"""Images read from disk in rows, tiles, blended scores, merged boxes, and interrupted work."""

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import mmcv
import numpy as np
import pytest
import torch
from mmengine.structures import BaseDataElement, InstanceData, PixelData
from PIL import Image, ImageOps, features
from pycocotools import mask as coco_mask
from scipy.fft import dctn, idctn

from rope_dense.data.images.sources import read_image
from rope_dense.data.labels.geometry import mask_lengths
from rope_dense.data.mask_colours import label_type
from rope_dense.data.tiles.band_image import open_image
from rope_dense.data.tiles.detection import (
    as_coco,
    detect,
    is_cut_by_tile,
    make_levels,
    suppress_duplicates,
)
from rope_dense.data.tiles.evaluation import ScoreBlender, segment
from rope_dense.data.tiles.image_file import LargeImage, write_raster
from rope_dense.data.tiles.plan import TileGrid, tile_weights
from rope_dense.utils.disk import read_json_lines
from rope_dense.utils.journal import Journal, JournalError
from rope_dense.utils.sizes import tile_starts

rasterio = pytest.importorskip(
    'rasterio', reason="no rasterio: pip install -e '.[large]'"
)
pytestmark = pytest.mark.filterwarnings(
    'ignore::rasterio.errors.NotGeoreferencedWarning'
)

Predict = Callable[[Sequence[np.ndarray]], list[BaseDataElement]]


# ---------------------------------------------------------------- tiles


@pytest.mark.parametrize('length', [1, 31, 32, 33, 40, 57, 100, 1000])
@pytest.mark.parametrize('overlap', [0, 8, 20, 31])
def test_tiles_cover_the_axis_and_share_the_overlap(length: int, overlap: int) -> None:
    starts = tile_starts(length, 32, overlap)
    if length <= 32:
        assert starts == [0]
        return
    steps = np.diff(starts)
    assert starts[0] == 0 and starts[-1] == length - 32
    assert (
        steps.min() > 0
        and steps.max() <= 32 - overlap
        and steps.max() - steps.min() <= 1
    )
    assert len(starts) == 1 + -(
        -(length - 32) // (32 - overlap)
    )  # as few as there can be


@pytest.mark.parametrize('tile, overlap', [(0, 0), (8, 8), (8, -1)])
def test_tiles_that_cannot_be(tile: int, overlap: int) -> None:
    with pytest.raises(ValueError, match=f'tile {tile}, overlap {overlap}'):
        tile_starts(20, tile, overlap)


@pytest.mark.parametrize(
    'length, overlap', [(20, 8), (32, 8), (33, 8), (100, 8), (100, 24)]
)
def test_weights_add_up_to_one(length: int, overlap: int) -> None:
    starts, tile = tile_starts(length, 32, overlap), min(32, length)
    weights, total, times = (
        tile_weights(starts, tile, length),
        np.zeros(length),
        np.zeros(length),
    )
    for start, weight in zip(starts, weights, strict=True):
        total[start : start + tile] += weight
        times[start : start + tile] += 1
    np.testing.assert_allclose(total, 1, atol=1e-6)
    alone = np.concatenate([times[start : start + tile] == 1 for start in starts])
    assert (weights.ravel()[alone] == 1).all() and (weights > 0).all()


def test_two_tiles_fade_linearly() -> None:
    first, second = tile_weights([0, 4], 8, 12)
    np.testing.assert_allclose(first, [1, 1, 1, 1, 7 / 8, 5 / 8, 3 / 8, 1 / 8])
    np.testing.assert_allclose(second, first[::-1])


# ---------------------------------------------------------------- image files

SHAPE = (75, 131)


def noise(*channels: int) -> np.ndarray:
    return np.random.default_rng(0).integers(
        256, size=(*SHAPE, *channels), dtype=np.uint8
    )


def tiff(path: Path, pixels: np.ndarray, **profile: object) -> None:
    planes = np.moveaxis(pixels, 2, 0)
    size = dict(count=len(planes), height=planes.shape[1], width=planes.shape[2])
    with rasterio.open(
        path, 'w', driver='GTiff', dtype=pixels.dtype, **size, **profile
    ) as file:
        file.write(planes)


def palette(path: Path) -> None:
    image = Image.fromarray(noise() % 7, 'P')
    image.putpalette(np.random.default_rng(1).integers(256, size=21).tolist())
    image.save(path)


def few_bits(path: Path, bits: int) -> None:
    """A grey image of all values of so many bits; with 1, GDAL gives it a palette."""
    tiff(path.with_suffix('.few'), (noise() >> (8 - bits))[..., None], nbits=bits)
    rasterio.shutil.copy(path.with_suffix('.few'), path, driver='PNG', nbits=bits)
    with rasterio.open(path) as file:
        assert file.tags(1, ns='IMAGE_STRUCTURE')['NBITS'] == str(bits)


FILES = {
    'rgb.png': lambda path: Image.fromarray(noise(3)).save(path),
    'alpha.png': lambda path: Image.fromarray(noise(4)).save(path),
    'grey.png': lambda path: Image.fromarray(noise()).save(path),
    'palette.png': palette,
    'strips.tif': lambda path: tiff(path, noise(3)),
    'tiled.tif': lambda path: tiff(
        path, noise(3), tiled=True, blockxsize=32, blockysize=16, compress='deflate'
    ),
    'planes.tif': lambda path: tiff(path, noise(3), interleave='band', compress='lzw'),
    '1 bit.png': lambda path: Image.fromarray(noise() > 127).save(path),
    '2 bits.png': lambda path: few_bits(path, 2),
    '4 bits.png': lambda path: few_bits(path, 4),
    '1 bit.tif': lambda path: Image.fromarray(noise() > 127).save(path),
    '1 bit palette.png': lambda path: few_bits(path, 1),
    'colours.jpg': lambda path: Image.fromarray(noise(3)).save(
        path, quality=95, subsampling=0
    ),
}


@pytest.mark.parametrize('name', FILES)
def test_rows_are_those_of_mmcv(name: str, tmp_path: Path) -> None:
    FILES[name](tmp_path / name)
    expected = mmcv.imread(str(tmp_path / name))
    image = LargeImage(tmp_path / name)
    assert (image.height, image.width) == SHAPE
    strips = [
        (0, 30),
        (20, 50),
        (45, 75),
        (45, 75),
        (10, 12),
    ]  # forwards, again, and back
    for top, bottom in strips:
        actual = image.read(top, bottom).astype(int)
        error = np.abs(actual - expected[top:bottom]).max()
        assert error <= (
            4 if name.endswith('.jpg') else 0
        )  # decoders of jpeg round in other ways


def test_half_resolution_colours_of_jpeg(tmp_path: Path) -> None:
    """libjpeg-turbo interpolates them linearly. GDAL has libjpeg 9, which takes the cosines of 8 x
    8 values for 16 x 16 pixels: recomputed here from values that both decode alike."""
    path = tmp_path / 'a.jpg'
    Image.fromarray(noise(3)[:64, :96]).save(path, quality=95, subsampling='4:2:0')
    small = Image.open(path)
    small.draft('YCbCr', (48, 32))  # half the size: colours as they are stored
    with rasterio.Env(GDAL_JPEG_TO_RGB='NO'), rasterio.open(path) as file:
        planes = file.read().astype(float)  # Y, Cb, Cr; the latter at the full size
    for plane, stored in zip(
        planes[1:], np.moveaxis(np.array(small), 2, 0)[1:], strict=True
    ):
        for top, left in itertools.product(range(0, 32, 8), range(0, 48, 8)):
            cosines = np.zeros((16, 16))
            block = stored[top : top + 8, left : left + 8].astype(float) - 128
            cosines[:8, :8] = 2 * dctn(block, norm='ortho')
            expected = (idctn(cosines, norm='ortho') + 128).clip(0, 255)
            actual = plane[2 * top : 2 * top + 16, 2 * left : 2 * left + 16]
            assert np.abs(actual - expected).max() < 2


def test_each_row_is_decoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.fromarray(noise(3)).save(tmp_path / 'a.png')
    image, rows = LargeImage(tmp_path / 'a.png'), []
    decode = image.decode
    monkeypatch.setattr(
        image, 'decode', lambda top, end: rows.append((top, end)) or decode(top, end)
    )
    for top in (0, 10, 20, 45):
        image.read(top, top + 30)
    assert rows == [(0, 30), (30, 40), (40, 50), (50, 75)]


@pytest.mark.parametrize('shrink', [2, 4, 64])
def test_shrunken_rows_are_means(
    shrink: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.fromarray(noise(3)).save(tmp_path / 'a.png')
    monkeypatch.setattr(
        'rope_dense.data.tiles.image_file.CHUNK', 3 * SHAPE[1] * shrink * 2
    )
    image = LargeImage(tmp_path / 'a.png', shrink)
    rows, columns = (-(-side // shrink) for side in SHAPE)
    missing = (0, rows * shrink - SHAPE[0]), (0, columns * shrink - SHAPE[1]), (0, 0)
    padded = np.pad(mmcv.imread(str(tmp_path / 'a.png')), missing, mode='edge').astype(
        float
    )
    expected = padded.reshape(rows, shrink, columns, shrink, 3).mean((1, 3))
    actual = np.concatenate([image.read(0, 1), image.read(1, rows)])
    assert np.abs(actual - expected).max() <= 0.501


@pytest.mark.parametrize(
    'make, says',
    [
        (lambda path: path.write_text('no image'), 'cannot be read as an image'),
        (lambda path: None, 'no such file'),
        (
            lambda path: tiff(path, noise(3).astype(np.uint16)),
            '3 bands of uint16, no picture',
        ),
        (lambda path: tiff(path, noise(5)), '5 bands of uint8, no picture'),
    ],
)
def test_files_that_cannot_be_read(make: Callable, says: str, tmp_path: Path) -> None:
    make(tmp_path / 'a.tif')
    with pytest.raises(ValueError, match=f'a.tif: {says}'):
        LargeImage(tmp_path / 'a.tif')


@pytest.mark.parametrize('name', ['a.avif', 'a.heic'])
def test_what_gdal_does_not_read_is_decoded_as_a_whole(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As training reads it: the image, its shrunken form, and windows by its copy."""
    if name.endswith('heic'):
        pytest.importorskip(
            'pillow_heif', reason='no pillow-heif'
        ).register_heif_opener()
    elif not features.check('avif'):
        pytest.skip('Pillow without AVIF')
    path = tmp_path / name
    Image.fromarray(noise(3)).save(path)
    expected = read_image(path)
    image = LargeImage(path)
    rows = np.concatenate([image.read(0, 30), image.read(20, image.height)[10:]])
    assert (rows == expected).all()
    half = LargeImage(path, 2)
    assert half.read(0, half.height).shape == (-(-len(expected) // 2), half.width, 3)
    copied = open_image(path, None, 1, str(tmp_path / 'copies'))
    assert (copied.window(5, 10, 25, 40) == expected[10:40, 5:25]).all()
    monkeypatch.setattr('rope_dense.data.images.headers.MOST_SIDE', 10)
    with pytest.raises(ValueError, match=rf'{name}: \d+ x \d+ pixels, of at most'):
        LargeImage(path)


@pytest.mark.parametrize('orientation', range(1, 9))
def test_photographs_are_turned_as_exif_says(orientation: int, tmp_path: Path) -> None:
    """As by Pillow, at full size and shrunken, in rows that are read one after the other."""
    exif = Image.Exif()
    exif[274] = orientation
    photograph = Image.fromarray(noise(3)).resize((120, 90), Image.BICUBIC)
    photograph.save(tmp_path / 'a.jpg', exif=exif, quality=100, subsampling=0)
    with Image.open(tmp_path / 'a.jpg') as stored:
        expected = np.asarray(ImageOps.exif_transpose(stored))[..., ::-1].astype(int)
    image = LargeImage(tmp_path / 'a.jpg')
    assert (image.height, image.width) == expected.shape[:2]
    actual = np.concatenate([image.read(0, 30), image.read(30, image.height)])
    assert np.abs(actual - expected).max() <= 2  # two decoders
    height, width = expected.shape[:2]
    means = expected.reshape(height // 2, 2, width // 2, 2, 3).mean((1, 3))
    shrunken = LargeImage(tmp_path / 'a.jpg', 2).read(0, height // 2)
    assert np.abs(shrunken - means).max() <= 2
    (tmp_path / 'a.jgw').write_text(
        '0.5\n0\n0\n-0.5\n100\n200\n'
    )  # a transform beside the image
    if orientation > 1:
        with pytest.raises(
            ValueError, match=r'a\.jpg: it has a transform to a map and an EXIF'
        ):
            LargeImage(tmp_path / 'a.jpg')


@pytest.mark.parametrize('name', ['labels.tif', 'labels.png'])
@pytest.mark.parametrize('dtype', [np.uint8, np.uint16])
def test_label_rasters(
    name: str, dtype: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('rope_dense.data.images.copies.BLOCK', 16)  # several chunks
    place = dict(
        crs='EPSG:32632', transform=rasterio.transform.from_origin(5e5, 5e6, 0.5, 0.5)
    )
    tiff(tmp_path / 'image.tif', noise(3), **place)
    labels = (noise() % 7).astype(dtype)
    (tmp_path / 'rows').write_bytes(labels.tobytes())
    colours = {label: (10 * label, 20, 30) for label in range(7)}
    image = LargeImage(tmp_path / 'image.tif')
    write_raster(tmp_path / 'rows', tmp_path / name, image, np.dtype(dtype), colours)
    assert {file.name for file in tmp_path.iterdir()} == {'image.tif', 'rows', name}
    read = Image.open(tmp_path / name)
    assert (np.array(read) == labels).all()
    if dtype is np.uint8:
        assert read.getpalette()[:6] == [0, 20, 30, 10, 20, 30]
    if name.endswith('.tif'):
        with rasterio.open(tmp_path / name) as file:
            assert file.crs == place['crs'] and file.transform == place['transform']


# ---------------------------------------------------------------- the journal


def test_work_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    journal = Journal(tmp_path / 'work', dict(tile=8))
    journal.finish_step(b'one')
    journal.finish_step(b'two')
    with journal.content.open('ab') as file:
        file.write(b'thr')  # killed within the third step
    again = Journal(tmp_path / 'work', dict(tile=8))
    assert again.finished == 2 and again.content.read_bytes() == b'onetwo'
    again.finish_step(b'three')
    assert (
        Journal(tmp_path / 'work', dict(tile=8)).content.read_bytes() == b'onetwothree'
    )


def test_quick_steps_are_noted_together(tmp_path: Path) -> None:
    journal = Journal(tmp_path / 'work', dict(tile=8), seconds=1000)
    journal.finish_step(b'one')
    journal.noted -= 1000
    journal.finish_step(b'two')
    journal.finish_step(b'three')
    again = Journal(tmp_path / 'work', dict(tile=8))
    assert again.finished == 2 and again.content.read_bytes() == b'onetwo'


def test_work_of_other_settings_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path / 'work', dict(tile=8, overlap=2)).finish_step(b'one')
    with pytest.raises(JournalError, match=r'other settings: tile 8, now 16$'):
        Journal(tmp_path / 'work', dict(tile=16, overlap=2))


@pytest.mark.parametrize(
    'name, damage',
    [
        ('content', b'on'),  # would be continued with zeros
        ('state.json', b'{"settings": {"tile": 8}, "fini'),
        ('state.json', b'{"settings": {"tile": 8}, "finished": -1, "size": 3}'),
        ('state.json', b'[]'),
        ('state.json', b'\xff'),
    ],
)
def test_damaged_work_is_refused(tmp_path: Path, name: str, damage: bytes) -> None:
    Journal(tmp_path / 'work', dict(tile=8)).finish_step(b'one')
    (tmp_path / 'work' / name).write_bytes(damage)
    with pytest.raises(JournalError, match=rf'work/{name} is damaged \('):
        Journal(tmp_path / 'work', dict(tile=8))
    assert (tmp_path / 'work' / name).read_bytes() == damage


@pytest.mark.parametrize('damage', ['cut', 'empty', 'missing', 'shape'])
def test_damaged_scores_are_refused(tmp_path: Path, damage: str) -> None:
    grid = TileGrid(24, 16, 16, 8)
    scores = torch.randn(2, 1, 3, 16, 16)
    ScoreBlender(grid, tmp_path, 'semantic', 3, 0.3).blend(0, scores[0])
    path = tmp_path / 'scores_0_0.npy'
    content = path.read_bytes()
    if damage == 'missing':
        path.unlink()
    elif damage == 'shape':
        np.save(path, np.load(path)[:, 1:])
    else:
        path.write_bytes(content[:-1] if damage == 'cut' else b'')
    with pytest.raises(JournalError, match=r'scores_0_0.npy is damaged \('):
        ScoreBlender(grid, tmp_path, 'semantic', 3, 0.3).blend(1, scores[1])


# ---------------------------------------------------------------- segmentation


@pytest.mark.parametrize('overlap', [0, 6, 13])  # 13 of 16: six tiles cover a pixel
@pytest.mark.parametrize('num_scores', [1, 5])
def test_labels_are_those_of_the_weighted_sum(
    overlap: int, num_scores: int, tmp_path: Path
) -> None:
    grid = TileGrid(41, 58, 16, overlap)
    scores = torch.randn(len(grid.tops), len(grid.lefts), num_scores, 16, 16)
    total = torch.zeros(num_scores, 41, 58, dtype=torch.float64)
    for row, top in enumerate(grid.tops):
        for column, left in enumerate(grid.lefts):
            weight = np.outer(grid.row_weights[row], grid.column_weights[column])
            tile = scores[row, column].double() * torch.from_numpy(weight)
            total[:, top : top + 16, left : left + 16] += tile
    rows = []
    for row in range(len(grid.tops)):
        fresh = ScoreBlender(
            grid, tmp_path, 'semantic', num_scores, 0.1
        )  # as after a kill
        rows.append(fresh.blend(row, scores[row]))
        fresh.forget(row - 1)
    expected = total.argmax(0) if num_scores > 1 else (total[0] > 0.1).long()
    assert (np.concatenate(rows) == expected.numpy()).all()
    assert not list(tmp_path.iterdir())


def test_labels_have_the_smallest_type() -> None:
    assert [label_type(number) for number in (1, 255, 256)] == [
        np.uint8,
        np.uint8,
        np.uint16,
    ]


def shapes(
    height: int, width: int, boxes: Sequence[tuple[int, int, int, int]]
) -> np.ndarray:
    """Bright rectangles (left, top, right, bottom) on black, [height, width, 3]."""
    picture = np.zeros((height, width, 3), np.uint8)
    for left, top, right, bottom in boxes:
        picture[top:bottom, left:right] = 255
    return picture


def bright_but_wrong_at_borders(tiles: Sequence[np.ndarray]) -> list[BaseDataElement]:
    """Score 1 of class 1 for bright pixels, of class 0 for others; within 3 pixels of the tile's
    border those of the opposite class, as a model may err where it sees little context."""
    samples = []
    for tile in tiles:
        bright = torch.from_numpy(tile[..., 0].copy()) > 127
        wrong = torch.ones_like(bright)
        wrong[3:-3, 3:-3] = False
        bright = bright ^ wrong
        scores = torch.stack([~bright, bright]).float()
        samples.append(BaseDataElement(seg_logits=PixelData(data=scores)))
    return samples


def test_masks_are_continuous_over_seams(tmp_path: Path) -> None:
    """A shape over four tiles, and all that is not at the border of the image, is as it is."""
    picture = shapes(120, 120, [(30, 35, 90, 70)])
    Image.fromarray(picture).save(tmp_path / 'a.png')

    def labels(overlap: int) -> np.ndarray:
        image, grid = LargeImage(tmp_path / 'a.png'), TileGrid(120, 120, 40, overlap)
        journal = Journal(tmp_path / f'work{overlap}', {})
        segment(
            image,
            grid,
            'semantic',
            2,
            0.3,
            bright_but_wrong_at_borders,
            journal,
            range(len(grid.tops)),
        )
        assert {file.name for file in journal.folder.iterdir()} == {
            'state.json',
            'content',
        }
        return np.fromfile(journal.content, np.uint8).reshape(120, 120)

    inside = (slice(3, -3),) * 2
    expected = picture[..., 0] // 255
    assert (labels(15)[inside] == expected[inside]).all()
    assert (labels(0)[inside] != expected[inside]).any()


# ---------------------------------------------------------------- detection


def rectangles(tiles: Sequence[np.ndarray], shrink: int = 1) -> list[BaseDataElement]:
    """Detections of a perfect detector: boxes and masks of the connected parts that are bright."""
    samples = []
    for tile in tiles:
        count, parts, stats, _ = cv2.connectedComponentsWithStats(
            np.uint8(tile[..., 0] > 127)
        )
        left, top, width, height, _ = torch.from_numpy(stats[1:]).float().unbind(1)
        found = InstanceData(
            bboxes=torch.stack([left, top, left + width, top + height], 1)
        )
        found.scores = 1 - 1 / (width * height)  # surer where an object has more pixels
        found.labels = torch.zeros(count - 1, dtype=torch.long)
        found.masks = torch.from_numpy(parts == np.arange(1, count)[:, None, None])
        samples.append(BaseDataElement(pred_instances=found))
    return samples


def found_in(picture: np.ndarray, folder: Path, **options: int) -> list[dict]:
    Image.fromarray(picture).save(folder / 'a.png')
    height, width = picture.shape[:2]
    settings = dict(tile=64, overlap=16, halvings=-1) | options
    levels, journal = (
        make_levels(height, width, **settings),
        Journal(folder / 'work', {}),
    )
    detect(folder / 'a.png', levels, 0.1, None, rectangles, journal, range(999))
    return suppress_duplicates(list(read_json_lines(journal.content)), 0.5)


BOXES = [
    (40, 40, 54, 54),  # whole in the first tile, and in the overlap of four
    (100, 8, 112, 20),
    (88, 88, 100, 248),  # longer than a tile; multiples of 4, so halving twice is exact
    (128, 128, 240, 240),  # larger than a tile, over four of them and more
    (8, 200, 60, 252),
]


def test_every_shape_is_found_once(tmp_path: Path) -> None:
    picture = shapes(256, 256, BOXES)
    lines = found_in(picture, tmp_path)
    assert sorted(line['box'] for line in lines) == sorted(map(list, BOXES))
    for line in lines:
        left, top, right, bottom = map(int, line['box'])
        expected = np.zeros((256, 256), np.uint8)
        expected[top:bottom, left:right] = 1
        mask = coco_mask.decode(
            dict(size=[256, 256], counts=line['mask']['counts'].encode())
        )
        assert (mask == expected).all() and line['mask']['area'] == expected.sum()


def test_without_halvings_large_shapes_are_in_pieces(tmp_path: Path) -> None:
    lines = found_in(shapes(256, 256, [(60, 60, 240, 240)]), tmp_path, halvings=0)
    assert len(lines) > 4 and all(line['cut'] for line in lines)


def test_levels_end_with_one_tile() -> None:
    levels = make_levels(1000, 300, tile=64, overlap=16, halvings=-1)
    assert [level.shrink for level in levels] == [1, 2, 4, 8, 16]
    assert [len(level.grid) for level in levels][-2:] == [3, 1]
    assert levels[-1].grid.height == 63 and levels[-1].grid.width == 19
    assert len(make_levels(1000, 300, tile=64, overlap=16, halvings=2)) == 3
    assert len(make_levels(64, 64, tile=64, overlap=16, halvings=-1)) == 1


def test_boxes_at_inner_sides_are_cut() -> None:
    grid = TileGrid(200, 200, 100, 0)
    boxes = torch.tensor(
        [[0.0, 0, 50, 50], [50, 50, 99.5, 60], [50, 50, 60, 99.5], [2, 2, 98, 98]]
    )
    assert is_cut_by_tile(boxes, grid, 0, 0).tolist() == [False, True, True, False]
    assert is_cut_by_tile(boxes, grid, 1, 1).tolist() == [True, False, False, False]


def line(
    box: tuple[float, ...], score: float, tile: int, cut: bool = False, label: int = 0
) -> dict:
    return dict(box=list(box), score=score, label=label, tile=tile, cut=cut)


def test_the_rule_of_merging() -> None:
    whole = line((0, 0, 10, 10), 0.5, tile=0)
    cases = [
        ([line((0, 0, 10, 9), 0.4, tile=1)], [0.5]),  # IoU 0.9
        ([line((0, 0, 10, 4), 0.4, tile=1)], [0.5, 0.4]),  # IoU 0.4
        (
            [line((0, 0, 10, 4), 0.9, tile=1, cut=True)],
            [0.5],
        ),  # cut, and within the whole one
        ([line((8, 0, 18, 10), 0.9, tile=1, cut=True)], [0.9, 0.5]),  # a fifth of it is
        ([line((0, 0, 10, 9), 0.4, tile=0)], [0.5, 0.4]),  # of the same tile
        ([line((0, 0, 10, 9), 0.4, tile=1, label=1)], [0.5, 0.4]),  # of another class
        ([line((0, 0, 10, 9), 0.8, tile=1)], [0.8]),  # the higher score
    ]
    for others, expected in cases:
        assert [
            left['score'] for left in suppress_duplicates([whole, *others], 0.5)
        ] == expected
    assert suppress_duplicates([], 0.5) == []


def test_a_dropped_box_drops_no_other() -> None:
    chain = [
        line((x, 0, x + 10, 10), 0.9 - x / 100, tile=x) for x in (0, 3, 6)
    ]  # IoU 0.54 each
    assert [left['box'][0] for left in suppress_duplicates(chain, 0.5)] == [0, 6]


def test_coco_reads_the_result(tmp_path: Path) -> None:
    lines = found_in(shapes(256, 256, BOXES), tmp_path)
    (tmp_path / 'a.json').write_text(
        json.dumps(as_coco(lines, 'a.png', (256, 256), ['shape']))
    )
    from pycocotools.coco import COCO

    coco = COCO(str(tmp_path / 'a.json'))
    annotations = coco.loadAnns(coco.getAnnIds(catIds=coco.getCatIds(['shape'])))
    assert len(annotations) == len(BOXES)
    for annotation in annotations:
        assert coco.annToMask(annotation).sum() == annotation['area']
        _left, _top, width, height = annotation['bbox']
        assert annotation['area'] == width * height


@pytest.mark.parametrize('shrink', [1, 3])
@pytest.mark.parametrize('left, top', [(0, 0), (5, 2), (9, 11)])
def test_masks_are_those_of_the_pasted_tile(shrink: int, left: int, top: int) -> None:
    """The tile reaches over the image where that is not a multiple of the shrinking."""
    height, width = 20 * shrink - (shrink > 1), 17 * shrink - (shrink > 1)
    mask = np.random.default_rng(left).random((20 - top, 17 - left)) > 0.4
    mask[:, 2:4] = True  # columns of the whole height, side by side
    actual = mask_lengths(mask, left, top, (height, width), shrink)
    pasted = np.zeros((20, 17), bool)
    pasted[top:, left:] = mask
    pasted = pasted.repeat(shrink, 0).repeat(shrink, 1)[:height, :width]
    expected = coco_mask.encode(np.asfortranarray(pasted, dtype=np.uint8))
    assert actual == dict(counts=expected['counts'].decode(), size=[height, width])


def test_an_empty_mask() -> None:
    assert coco_mask.area(mask_lengths(np.zeros((4, 4), bool), 0, 0, (9, 9))) == 0
