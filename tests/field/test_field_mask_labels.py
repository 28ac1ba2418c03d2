"""Masks of any depth of bits, numbers that are no class, and masks that train nothing."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any
from zlib import compress, crc32

import cv2
import numpy as np
import pytest
from mmengine.config import Config
from mmengine.registry import DATASETS, DefaultScope
from PIL import Image

from helpers.field import SIZE, image, mask, write
from rope_dense.data.mask_labels import label_map, mask_lines, read_labels, survey_masks
from rope_dense.project.checks.data import check_model_classes
from rope_dense.utils.errors import UsageError

pytestmark = pytest.mark.usefixtures('surroundings')
DEEP = np.uint16
RED, BLACK, WHITE = (255, 0, 0), (0, 0, 0), (255, 255, 255)


def png(path: Path, bits: int, kind: int, *rows: bytes) -> Path:
    """Write a PNG of given bits: `kind` 0 is grey, 2 RGB, 4 grey with alpha; 8 pixels a row."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack('>I', len(data))
            + name
            + data
            + struct.pack('>I', crc32(name + data))
        )

    header = struct.pack('>IIBBBBB', 8, len(rows), bits, kind, 0, 0, 0)
    data = compress(b''.join(b'\0' + row for row in rows))
    content = chunk(b'IHDR', header) + chunk(b'IDAT', data) + chunk(b'IEND', b'')
    return write(path, b'\x89PNG\r\n\x1a\n' + content)


def grey(values: list[int], dtype: type = np.uint8) -> np.ndarray:
    return np.array([values], dtype)


def palette(values: list[int], *colours: tuple[int, int, int]) -> Image.Image:
    picture = Image.fromarray(grey(values), 'P')
    picture.putpalette([part for colour in colours for part in colour])
    return picture


def saved(path: Path, picture: Image.Image | np.ndarray) -> Path:
    (Image.fromarray(picture) if isinstance(picture, np.ndarray) else picture).save(
        path
    )
    return path


def three(values: list[int], dtype: type = np.uint8) -> np.ndarray:
    return np.stack([grey(values, dtype)] * 3, axis=-1)


SHOWN = [0, 1, 2, 0, 1, 2, 255, 255]  # the labels of all masks of the next test
GREY = Image.fromarray(grey(SHOWN))
READ = {
    '8 bits': lambda p: saved(p, grey(SHOWN)),
    '16 bits': lambda p: saved(p, grey(SHOWN, DEEP)),
    '32 bits': lambda p: saved(p.with_suffix('.tif'), grey(SHOWN, np.int32)),
    'float': lambda p: saved(p.with_suffix('.tif'), grey(SHOWN, np.float32)),
    'bmp': lambda p: saved(p.with_suffix('.bmp'), grey(SHOWN)),
    'RGB of equal channels': lambda p: saved(p, three(SHOWN)),
    'grey with alpha': lambda p: saved(p, Image.merge('LA', [GREY] * 2)),
    'RGBA': lambda p: saved(p, Image.merge('RGBA', [GREY] * 4)),
    'RGB of 16 bits': lambda p: cv2.imwrite(str(p), three(SHOWN, DEEP)),
    'grey of 16 bits with alpha': lambda p: png(
        p,
        16,
        4,
        struct.pack('>16H', *(part for value in SHOWN for part in (value, 65535))),
    ),
    'palette': lambda p: saved(p, palette(SHOWN, *((i, 0, 9) for i in range(256)))),
}


@pytest.mark.parametrize('kind', READ)
def test_masks_of_any_bits_are_the_same_labels(tmp_path: Path, kind: str) -> None:
    """F17, F18: palettes by their indices, as VOC's; the file may have 16 or 32 bits."""
    READ[kind](tmp_path / 'a.png')
    (path,) = tmp_path.iterdir()
    labels = read_labels(path, label_map(('a', 'b', 'c')))
    assert labels.dtype == np.uint8 and labels.tolist() == [SHOWN]


HALVES, FOURS = [0, 0, 0, 0, 1, 1, 1, 1], [0, 1, 0, 1, 1, 0, 1, 0]
# (writer, own.values, labels): small depths, and numbers that settings name.
NAMED = {
    '1 bit': (lambda p: png(p, 1, 0, b'\x0f'), None, HALVES),
    '1 bit as it is shown': (lambda p: png(p, 1, 0, b'\x0f'), [0, 255], HALVES),
    '2 bits': (lambda p: png(p, 2, 0, b'\x11\x01'), None, [0, 1, 0, 1, 0, 0, 0, 1]),
    '4 bits': (lambda p: png(p, 4, 0, b'\x01\x01\x10\x10'), None, FOURS),
    '4 bits as shown': (lambda p: png(p, 4, 0, b'\x01\x01\x10\x10'), [0, 17], FOURS),
    '0 and 255': (lambda p: saved(p, grey([0, 255])), [0, 255], [0, 1]),
    '255 and 0': (lambda p: saved(p, grey([0, 255])), [255, 0], [1, 0]),
    'palette of two': (
        lambda p: saved(p, palette([0, 1], BLACK, WHITE)),
        [0, 255],
        [0, 1],
    ),
    'gif': (lambda p: saved(p.with_suffix('.gif'), grey([0, 255])), [0, 255], [0, 1]),
    'above 255': (lambda p: saved(p, grey([300, 26001], DEEP)), [300, 26001], [0, 1]),
    'negative': (
        lambda p: saved(p.with_suffix('.tif'), grey([-1, 7], np.int32)),
        [-1, 7],
        [0, 1],
    ),
}


@pytest.mark.parametrize('kind', NAMED)
def test_numbers_of_the_classes(tmp_path: Path, kind: str) -> None:
    """F16: one setting reads masks of 0 and 255."""
    write_file, values, expected = NAMED[kind]
    write_file(tmp_path / 'a.png')
    (path,) = tmp_path.iterdir()
    assert read_labels(path, label_map(('a', 'b'), values)).tolist() == [expected]


# (writer, what is said)
NO_CLASS = {
    '300': (
        lambda p: saved(p, grey([0, 300], DEEP)),
        r'a\.png has 300: neither .*\(0 to 1\)',
    ),
    '256 + 1': (lambda p: saved(p, grey([0, 257], DEEP)), 'a.png has 257: '),
    '32 bits': (
        lambda p: saved(p.with_suffix('.tif'), grey([0, 513], np.int32)),
        'has 513: ',
    ),
    '-1': (lambda p: saved(p.with_suffix('.tif'), grey([-1, 0], np.int32)), 'has -1: '),
    'half': (
        lambda p: saved(p.with_suffix('.tif'), grey([0.5], np.float32)),
        r'has 0\.5: ',
    ),
    'nan': (
        lambda p: saved(p.with_suffix('.tif'), grey([np.nan], np.float32)),
        'has nan: ',
    ),
    '300 in RGB': (lambda p: cv2.imwrite(str(p), three([300], DEEP)), 'has 300: '),
    'many': (
        lambda p: saved(p, grey([*range(20)])),
        r'has 2, 3, 4, 5, 6, 7, 8, 9 \.\.\.: ',
    ),
    'colours': (
        lambda p: saved(p, three([1]) + grey([0, 1, 2])),
        '`rope-dense convert-data col',
    ),
    'alpha': (
        lambda p: saved(p, np.array([[[0, 0, 0, 0], [0, 0, 0, 255]]], np.uint8)),
        'only the alpha of the mask varies: ',
    ),
    'text': (lambda p: write(p, 'no image'), 'cannot be read as a mask'),
    'cut off': (
        lambda p: write(p, saved(p, np.eye(40, dtype=np.uint8)).read_bytes()[:60]),
        'cannot be read as a mask',
    ),
}


@pytest.mark.parametrize('kind', NO_CLASS)
def test_other_numbers_are_named_before_any_cast(tmp_path: Path, kind: str) -> None:
    """F17: mmseg takes 257 for class 1. F18: 'differ in size' was said of colours."""
    write_file, message = NO_CLASS[kind]
    write_file(tmp_path / 'a.png')
    (path,) = tmp_path.iterdir()
    with pytest.raises(ValueError, match=message) as error:
        read_labels(path, label_map(('a', 'b')))
    assert str(path) in str(error.value) and '\n' not in str(error.value)


def test_void_numbers_close_up() -> None:
    """255 is ignored unless it is the number of a class."""
    assert label_map('abd', None, [2]) == {0: 0, 1: 1, 2: 255, 3: 2, 255: 255}
    assert label_map('ab', [0, 255], [7]) == {0: 0, 255: 1, 7: 255}
    for values, void in (([0], ()), ([0, 0], ()), ([0, 1, 2], ()), ([0, 1], [1])):
        with pytest.raises(
            ValueError, match='give one number for each of 2 classes, a, b'
        ):
            label_map('ab', values, void)


def surveyed(
    root: Path,
    classes: tuple[str, ...] = ('bg', 'road'),
    split: str = 'train',
    **numbers: Any,
) -> dict[str, Any]:
    """The survey of masks/ beside images/, as JSON has it."""
    pairs = [
        (root / 'images' / f'{path.stem}.jpg', path)
        for path in sorted((root / 'masks').iterdir())
    ]
    labels = label_map(classes, **numbers)
    return json.loads(json.dumps(survey_masks(pairs, split, labels, classes)))


def write_masks(root: Path, *labels: list) -> None:
    """Write an image and a mask of 16 bits for each list of numbers."""
    for number, label in enumerate(labels):
        image(root / f'images/{number:03}.jpg')
        mask(
            root / f'masks/{number:03}.png',
            np.resize(np.array(label), SIZE).astype(DEEP),
        )


CHECKED = {
    'masks of 0 and 255 (F16)': (
        ([0, 255],),
        {},
        r'have 0 and 255 only, and 255 means ignored, so that bg would be all that '
        r'is trained: own\.values=\[0,255\] reads them as bg and road',
    ),
    'all void': (
        ([255], [255, 7]),
        dict(void=[7]),
        'all pixels .* are ignored; .* 7, 255',
    ),
    'masks of one class': (([0], [0]), {}, 'all pixels of its 2 masks are bg: check'),
    '300': (([0, 1], [300]), {}, r'001\.png has 300: neither .*\(in 1 of 2 masks\)'),
}


@pytest.mark.parametrize('kind', CHECKED)
def test_masks_that_train_nothing_are_refused(tmp_path: Path, kind: str) -> None:
    labels, settings, message = CHECKED[kind]
    write_masks(tmp_path, *labels)
    with pytest.raises(ValueError, match=message) as error:
        surveyed(tmp_path, **settings)
    assert '\n' not in str(error.value) and str(tmp_path) in str(error.value)


def test_one_class_and_a_softmax_are_refused() -> None:
    """A softmax over one class predicts it for every pixel."""
    head = dict(num_classes=1, loss_decode=dict(type='CrossEntropyLoss'))
    cfg = Config(dict(model=dict(decode_head=head)))
    with pytest.raises(UsageError, match=r'road is the only class, .*the background'):
        check_model_classes(cfg, 'train_dataloader.dataset', ('road',))
    head['loss_decode']['use_sigmoid'] = True
    check_model_classes(Config(dict(model=dict(decode_head=head))), 'key', ('road',))


def test_all_masks_are_looked_at(tmp_path: Path) -> None:
    """A rare class in one of forty masks; and a class that no mask has is said."""
    classes = ('bg', 'road', 'sky')
    write_masks(tmp_path, *[[0, 255]] * 35, [1], *[[0]] * 4)
    survey = surveyed(tmp_path, classes)
    assert survey['numbers'] == [[0, 39, 0], [1, 1, 1], [255, 35, 255]]
    assert mask_lines(survey, classes) == [
        "1 of 3 classes have no pixel in 40 training masks: sky (is 0 'unlabelled'? Put its name "
        'first and own.void=[0])',
        '35 of 40 training masks have 0 and 255 only, and 255 is ignored',
    ]
    survey = surveyed(tmp_path, ('bg', 'sky', 'road'), values=[0, 7, 1])
    assert mask_lines(survey, ('bg', 'sky', 'road'))[0].endswith('training masks: sky')
    write_masks(tmp_path / 'two', [0, 255])
    assert not mask_lines(surveyed(tmp_path / 'two', values=[0, 255]), ('bg', 'road'))


def test_a_mask_of_another_size_is_named(tmp_path: Path) -> None:
    image(tmp_path / 'images/000.jpg')
    mask(tmp_path / 'masks/000.png', np.zeros((29, 40), np.uint8))
    with pytest.raises(
        ValueError, match=r'000\.png and its image .*000\.jpg differ in size, \(29, 40'
    ):
        surveyed(tmp_path)


def test_the_data_set_gives_labels(tmp_path: Path) -> None:
    """A list of pairs, of paths in folders or absolute; labels follow void and values."""
    pytest.importorskip('mmseg')
    import rope_dense.data.map_datasets  # noqa: F401

    numbers = np.resize([0, 1, 2, 3, 255], SIZE).astype(np.uint8)
    picture, of_image = (
        image(tmp_path / 'images/a.png'),
        mask(tmp_path / 'masks/b.tif', numbers),
    )
    settings = dict(
        type='ImageMaskDataset',
        data_root=str(tmp_path),
        metainfo=dict(classes=('a', 'b', 'd')),
        void=[2],
        pipeline=[dict(type='LoadImageFromFile'), dict(type='LoadClassMask')],
    )
    pairs = (
        ([['images/a.png', 'masks/b.tif']], {}),
        ([[str(picture), str(of_image)]], {}),
        (
            [['a.png', 'b.tif']],
            dict(data_prefix=dict(img_path='images', seg_map_path='masks')),
        ),
    )
    for given, prefix in pairs:
        write(tmp_path / 'pairs.json', json.dumps(dict(pairs=given)))
        with DefaultScope.overwrite_default_scope('mmseg'):
            built = DATASETS.build(dict(settings, ann_file='pairs.json', **prefix))
        assert built[0]['gt_seg_map'][0, :5].tolist() == [0, 1, 255, 2, 255]
    for text in ('[]', '{"pairs": [["a.png"]]}', '{', '[' * 100_000):
        write(tmp_path / 'pairs.json', text)
        with (
            DefaultScope.overwrite_default_scope('mmseg'),
            pytest.raises(
                ValueError, match=r'pairs\.json: no list of images and masks'
            ),
        ):
            DATASETS.build(dict(settings, ann_file='pairs.json'))


PALETTES = {
    'another order': (
        [([0, 1], BLACK, RED), ([1, 0], RED, BLACK)],
        r'index 0 is #000000 in .*000\.png and #ff0000 in .*001\.png: `rope-dense convert-data',
    ),
    'greys in another order': (
        [([0, 1], (1, 1, 1), BLACK)],
        'shows 0 as 1, 1 as 0, which are',
    ),
    'one colour': ([([0, 1], BLACK, RED), ([0, 0], BLACK, WHITE)], ''),
    'black and white': ([([0, 1], BLACK, WHITE), ([1, 1], BLACK, WHITE)], ''),
}


@pytest.mark.parametrize('kind', PALETTES)
def test_palettes_that_differ_are_refused(tmp_path: Path, kind: str) -> None:
    """Classes were swapped in some of the masks."""
    files, message = PALETTES[kind]
    for number, (values, *colours) in enumerate(files):
        image(tmp_path / f'images/{number:03}.jpg', (1, 2))
        path = tmp_path / f'masks/{number:03}.png'
        path.parent.mkdir(parents=True, exist_ok=True)
        saved(path, palette(values, *colours))
    if not message:
        surveyed(tmp_path)
        return
    with pytest.raises(ValueError, match=message):
        surveyed(tmp_path)
