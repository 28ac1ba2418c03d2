"""Pictures given to predict: names, formats, thin ones, and files that are no images."""

from __future__ import annotations

import struct
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from zlib import crc32

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import TRANSFORMS
from mmengine.structures import BaseDataElement, InstanceData, PixelData
from PIL import Image

from helpers.field import image, write
from rope_dense.data.images.bands import read_white_value
from rope_dense.data.images.headers import read_header
from rope_dense.data.images.sources import (
    ImageReader,
    find_sources,
    left_out_text,
    listed_sources,
    named_sources,
    read_image,
    unreadable_sources,
)
from rope_dense.data.labels.files import IMAGE_SUFFIXES
from rope_dense.data.mask_colours import write_labels
from rope_dense.predict import share
from rope_dense.predict.formats import dota_names
from rope_dense.predict.inferencer import crop_sample, pad_to_ratio
from rope_dense.predict.place import ImageJournal
from rope_dense.predict.video import DrawnVideo
from rope_dense.project.contents import MOST, UNBOUNDED, max_aspect_ratio
from rope_dense.project.own.images import fit_pictures, survey_pictures
from rope_dense.utils.errors import UsageError
from rope_dense.utils.results import Results

pytestmark = pytest.mark.usefixtures('surroundings')
COLOUR = (204, 102, 0)  # red, green, blue: of the web's palette


def test_files_that_are_no_images_are_named(tmp_path: Path) -> None:
    """F20: a folder named like an image and a dead link; B10: macOS's files."""
    for name in ('a.JPG', 'deep/b.jfif', 'out/c.jpg', 'd.jpg/e.png'):
        image(tmp_path / name)
    for name in ('._a.jpg', '.cache/x.jpg', '__MACOSX/y.jpg', 'notes.txt', 'z.NEF'):
        write(tmp_path / name, 'x')
    (tmp_path / 'link.png').symlink_to(tmp_path / 'nowhere.png')
    out = tmp_path / 'out'
    assert [source.file_name for source in find_sources(tmp_path, out)] == [
        *('a.JPG', 'd.jpg/e.png', 'deep/b.jfif')
    ]
    problems = {s.file_name: reason(s.path) for s in unreadable_sources(tmp_path, out)}
    assert problems == {
        'd.jpg': 'a folder',
        'link.png': 'a link to a file that is not there',
    }
    assert left_out_text(tmp_path, IMAGE_SUFFIXES, out) == '1 .nef'
    assert (
        reason(tmp_path / 'z.NEF')
        == '.NEF is not read here: convert it to .png or .jpg'
    )
    (missing,) = listed_sources([f'{tmp_path}/gone.png\n', f'{tmp_path}/gone.png'])
    assert reason(missing.path) == 'no such file'


def reason(path: Path) -> str:
    """The reason why an image is not read."""
    with pytest.raises(ValueError) as said:
        read_image(path)
    assert '\n' not in str(said.value) and str(said.value).startswith(f'{path}: ')
    return str(said.value).removeprefix(f'{path}: ')


@pytest.mark.parametrize(
    'given, pictures',
    [
        ('a.png b.jpg', 'a.jpg b.jpg'),
        ('a.png a.jpg', 'a.png.jpg a.jpg.jpg'),
        ('x.png x.jpg x.png.jpg', 'x.png.jpg x.jpg.jpg x.png.jpg.jpg'),
        (
            'x.png x.jpg x.png.jpg x.png.png',
            'x.png.jpg x.jpg.jpg x.png.jpg.jpg x.png.png.jpg',
        ),
        ('s/a.png t/a.png', 's/a.jpg t/a.jpg'),
        ('A.png a.png', 'A.png.jpg a.png.jpg'),
    ],
)
def test_no_two_images_have_one_picture(given: str, pictures: str) -> None:
    """B26: the third of x.png, x.jpg and x.png.jpg wrote over the picture of the first."""
    sources = named_sources([Path(name) for name in given.split()], Path())
    found = [source.picture for source in sources]
    assert len({*found}) == len(found)
    assert found == pictures.split() or given.startswith('A')


FORMATS = {
    'a.jpg': ('RGB', {}),
    'a.jfif': ('RGB', dict(format='jpeg')),
    'cmyk.jpg': ('CMYK', {}),
    'cmyk.tif': ('CMYK', {}),
    'a.gif': ('P', {}),
    'a.webp': ('RGB', {}),
    'a.bmp': ('RGB', {}),
    'palette.png': ('P', {}),
    'alpha.png': ('RGBA', {}),
    'a.avif': ('RGB', {}),
    'a.heic': ('RGB', {}),
}


@pytest.mark.parametrize('name', FORMATS)
@pytest.mark.parametrize('opencv', [True, False])
def test_formats_are_read_by_opencv_or_pillow(
    tmp_path: Path, name: str, opencv: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pillow reads what OpenCV cannot: .avif or .heic, by the builds of both."""
    mode, save = FORMATS[name]
    if Path(name).suffix not in Image.registered_extensions():
        pytest.skip('not in this Pillow')
    Image.new('RGB', (8, 6), COLOUR).convert(mode).save(tmp_path / name, **save)
    if not opencv:
        monkeypatch.setattr(cv2, 'imdecode', lambda content, flags: None)
    pixels = read_image(tmp_path / name)
    assert pixels.shape == (6, 8, 3) and pixels.flags.c_contiguous
    if not (mode == 'CMYK' and opencv):  # without a profile
        assert np.abs(pixels[0, 0].astype(int) - COLOUR[::-1]).max() < 12


def test_photographs_of_phones_need_a_plug_in(tmp_path: Path) -> None:
    write(tmp_path / 'a.HEIC', b'')
    code = """
    import sys
    sys.modules['pillow_heif'] = None
    from pathlib import Path
    from rope_dense.data.images.sources import find_sources
    find_sources(Path(sys.argv[1]))
    """
    command = [sys.executable, '-c', dedent(code), str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    assert 'there are 1 .HEIC (pip install pillow-heif)' in said


def test_pillow_turns_photographs_and_refuses_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exif = Image.Exif()
    exif[274] = 6
    Image.new('RGB', (8, 6)).save(tmp_path / 'a.jpg', exif=exif)
    expected = read_image(tmp_path / 'a.jpg')
    monkeypatch.setattr(cv2, 'imdecode', lambda content, flags: None)
    turned = read_image(tmp_path / 'a.jpg')
    assert turned.shape == expected.shape == (8, 6, 3)
    for dtype in (np.float32, np.int32, np.uint16):  # 255 would be white
        Image.fromarray(np.ones((6, 8), dtype)).save(tmp_path / 'a.tif')
        assert reason(tmp_path / 'a.tif')
    write(tmp_path / 'b.jpg', (tmp_path / 'a.jpg').read_bytes()[:200])
    assert reason(tmp_path / 'b.jpg').startswith('cannot be read as an image')


def test_headers_of_satellite_images(tmp_path: Path) -> None:
    """B6: more than 179 megapixels, where Pillow raises by default."""
    header = struct.pack('>II', 20000, 20000) + bytes([8, 0, 0, 0, 0])
    chunks = ((b'IHDR', header), (b'IDAT', bytes(20000**2 // 1000)), (b'IEND', b''))
    content = b'\x89PNG\r\n\x1a\n' + b''.join(
        struct.pack('>I', len(data))
        + name
        + data
        + struct.pack('>I', crc32(name + data))
        for name, data in chunks
    )
    found = read_header(write(tmp_path / 'a.png', content))
    assert (found.height, found.width) == (20000, 20000)


def test_ranges_of_black_and_of_mixed_images(tmp_path: Path) -> None:
    """B26: a division by zero; and an image of 8 bits that sorts first, before those of 12."""
    cv2.imwrite(str(tmp_path / 'b.png'), np.zeros((4, 4), np.uint16))
    assert white(tmp_path) == 65535
    cv2.imwrite(str(tmp_path / 'a.png'), np.zeros((4, 4), np.uint8))
    cv2.imwrite(str(tmp_path / 'c.png'), np.full((4, 4, 3), 4000, np.uint16))
    assert white(tmp_path) == 4095


def white(folder: Path) -> int | None:
    return read_white_value({path: read_header(path) for path in folder.iterdir()})


def test_training_reads_by_pillow_what_opencv_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [image(tmp_path / 'a.jpg'), image(tmp_path / 'b.gif')]
    monkeypatch.setattr(cv2, 'haveImageReader', lambda path: not path.endswith('.gif'))
    headers = {path: read_header(path) for path in files}
    assert survey_pictures({files[0]: headers[files[0]]}, None)['backend'] is None
    survey = survey_pictures(headers, None)
    assert survey['backend'] == 'pillow'
    load = dict(type='LoadImageFromFile')
    loader = dict(dataset=dict(pipeline=[load]))
    cfg = {f'{split}_dataloader': loader for split in ('train', 'val', 'test')}
    cfg['custom_imports'] = dict(imports=[])
    fit_pictures(cfg, survey)
    assert load['imdecode_backend'] == 'pillow'
    (plug_ins,) = cfg['custom_imports'][
        'imports'
    ]  # for programs that have only the config
    assert vars(import_module(plug_ins))['MISSING'] == {}


@pytest.mark.parametrize('backend', ['cv2', 'pillow'])
def test_prediction_reads_as_the_pipeline(backend: str, tmp_path: Path) -> None:
    """Grey with an alpha, too: OpenCV drops it, and Pillow has a canvas below in mmcv."""
    random = np.random.default_rng(0)
    exif = Image.Exif()
    exif[274] = 6
    step = dict(type='LoadImageFromFile', imdecode_backend=backend)
    reader = ImageReader([step])
    load = TRANSFORMS.build(step)
    for mode, suffix in (('LA', 'png'), ('RGBA', 'png'), ('P', 'png'), ('RGB', 'jpg')):
        path = tmp_path / f'{mode}.{suffix}'
        bands = Image.fromarray(random.integers(256, size=(9, 7, 4), dtype=np.uint8))
        bands.convert(mode).save(path, exif=exif)
        expected = load(dict(img_path=str(path)))['img']
        assert expected.shape == (7, 9, 3)
        np.testing.assert_array_equal(reader.read(path), expected)


def resize(name: str = 'Resize', **settings: object) -> list[dict]:
    return [dict(type='LoadImageFromFile'), dict(type=name, **settings)]


@pytest.mark.parametrize(
    'pipeline, ratio',
    [
        (resize(scale=(1333, 800), keep_ratio=True), MOST),
        (resize(scale=(96, 64), keep_ratio=True), 3),  # two patches
        (resize(scale=(2048, 512), keep_ratio=True), MOST),
        (resize(scale=(10**6, 512), keep_ratio=True), UNBOUNDED),
        (resize('ResizeShortestEdge', scale=512, max_size=10**6), UNBOUNDED),
        (resize('mmseg.ResizeShortestEdge', scale=512, max_size=2048), MOST),
        (resize(scale=(640, 640), keep_ratio=False), np.inf),
        (resize('PackDetInputs'), np.inf),
    ],
)
def test_how_thin_pictures_may_be(pipeline: list[dict], ratio: float) -> None:
    assert max_aspect_ratio(pipeline, 16) == ratio


@pytest.mark.parametrize('size', [(8, 2000), (300, 1), (40, 4000)])
def test_thin_pictures_are_padded_at_the_bottom_or_the_right(
    size: tuple[int, int],
) -> None:
    """F24: OpenCV's assertion was the reason that was given."""
    pixels = np.random.default_rng(0).integers(0, 255, (*size, 3), np.uint8)
    whole = pad_to_ratio(pixels, MOST)
    height, width = whole.shape[:2]
    assert max(height, width) == max(size) and max(height, width) <= MOST * min(
        height, width
    )
    assert (whole[: size[0], : size[1]] == pixels).all()
    assert pad_to_ratio(whole, MOST) is whole
    with pytest.raises(
        ValueError, match=r'60000 x 2 pixels are too thin: padded, .* 450 mega'
    ):
        pad_to_ratio(np.zeros((2, 60000, 3), np.uint8), MOST)


def test_predictions_of_padded_pictures_are_cut() -> None:
    """Boxes and masks stay in the pixels of the picture; what is in the padding goes."""
    boxes = torch.tensor([[0.0, 0, 90, 30], [10, 2, 20, 6], [0, 20, 9, 40]])
    masks = torch.zeros(3, 50, 100, dtype=torch.bool)
    for mask, (left, top, right, bottom) in zip(
        masks, boxes.int().tolist(), strict=True
    ):
        mask[top:bottom, left:right] = True
    objects = InstanceData(
        bboxes=boxes, scores=torch.ones(3), labels=torch.arange(3), masks=masks
    )
    task = BaseDataElement(pred_instances=objects, gt_instances=InstanceData())
    sample = BaseDataElement(
        pred_sem_seg=PixelData(data=torch.zeros(1, 50, 100)),
        features=PixelData(data=torch.zeros(4, 5, 10)),
        boxes=task,
    )
    crop_sample(sample, (8, 100), (50, 100))
    found = task.pred_instances
    assert found.labels.tolist() == [0, 1] and found.masks.shape == (2, 8, 100)
    assert found.bboxes.tolist() == [[0, 0, 90, 8], [10, 2, 20, 6]]
    assert sample.pred_sem_seg.shape == (8, 100) and sample.features.shape == (1, 10)
    assert sample.ori_shape == (8, 100)
    rotated = InstanceData(bboxes=torch.tensor([[5.0, 4, 9, 9, 1], [5, 9, 9, 9, 1]]))
    task = BaseDataElement(pred_instances=rotated)
    crop_sample(task, (8, 100), (50, 100))
    assert task.pred_instances.bboxes.tolist() == [[5, 4, 9, 9, 1]]


class FakeInferencer:
    """Predicts a box with a given score, which may be NaN."""

    model = torch.nn.Identity()
    pipeline = SimpleNamespace(transforms=[])
    cfg = Config(
        dict(test_dataloader=dict(dataset=dict(pipeline=resize('PackDetInputs'))))
    )

    def __init__(self, *scores: float) -> None:
        self.scores = iter(scores)

    def __call__(self, images: list, **settings: object) -> list[BaseDataElement]:
        scores = [torch.tensor([next(self.scores)]) for _ in images]
        return [
            BaseDataElement(pred_instances=InstanceData(scores=score))
            for score in scores
        ]


def test_predictions_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    """F23: "16 objects" of NaN, in a predictions.json that no other reader takes."""
    inferencer = FakeInferencer(1.0, float('nan'), 1.0, float('nan'))
    sources = named_sources([tmp_path / 'a.png', tmp_path / 'b.png'], tmp_path)
    images = [(source, np.zeros((4, 4, 3), np.uint8)) for source in sources]
    failed: dict[Path, Exception] = {}
    found = list(share.predict_some(inferencer, images, failed))
    assert [source.file_name for (source, _), _ in found] == ['a.png']
    assert 'not finite (NaN)' in str(failed[tmp_path / 'b.png'])
    journal = ImageJournal(Results(tmp_path, 'predict/0'), {})
    with pytest.raises(ValueError, match='not JSON compliant'):
        journal.add(dict(file_name='a', score=float('nan')))


def test_a_video_that_opencv_cannot_write_is_said(tmp_path: Path) -> None:
    """B23: three tasks on a 4K video are 11,520 pixels wide."""
    file = tmp_path / 'a.mp4'
    says = r'a\.mp4: OpenCV writes no video of 11520 x 2160 pixels'
    with pytest.raises(UsageError, match=says):
        DrawnVideo(file, file, 25.0).add(np.zeros((2160, 11520, 3), np.uint8))
    drawn = DrawnVideo(file, file, 25.0)
    drawn.add(np.zeros((64, 96, 3), np.uint8))
    drawn.close()


def test_labels_of_many_classes_do_not_wrap_around(tmp_path: Path) -> None:
    """B26: class 300 was 44."""
    labels = np.array([[0, 44, 299]])
    write_labels(labels, tmp_path / 'a.png', [(0, 0, 0)] * 300)
    assert np.asarray(Image.open(tmp_path / 'a.png')).tolist() == labels.tolist()
    write_labels(labels % 256, tmp_path / 'b.png', [(0, 0, 9)] * 255)
    with Image.open(tmp_path / 'b.png') as written:
        assert written.mode == 'P' and np.asarray(written).tolist() == [[0, 44, 43]]


def test_names_in_dota_files_tell_images_apart() -> None:
    names = ['a.png', 's/b.png', 't/b.png', 'c.jpg', 'c.png']
    images = [dict(id=number, file_name=name) for number, name in enumerate(names)]
    assert [*dota_names(images).values()] == [
        'a',
        's/b.png',
        't/b.png',
        'c.jpg',
        'c.png',
    ]
