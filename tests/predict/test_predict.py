"""rope-dense predict gives what the inferencers of mmdet and mmseg give, from any source."""

import io
from collections.abc import Iterator
from pathlib import Path
from random import Random

import cv2
import mmcv
import mmengine
import numpy as np
import pytest
import torch
from mmengine.config import Config
from PIL import Image

from helpers.seeds import seed_of_the_week
from helpers.tool_names import Main
from rope_dense.checkpoints import read
from rope_dense.data.images import sources
from rope_dense.predict.images import predict as predict_images
from rope_dense.predict.request import Request
from rope_dense.project import identity
from rope_dense.project.model import random_model
from rope_dense_command import command


@pytest.fixture(scope='module')
def predict() -> Main:
    return command('predict')


@pytest.fixture(scope='module')
def pictures(data: Path) -> Path:
    return data / 'coco' / 'val2017'


def checkpoint_of(config: str, folder: Path) -> str:
    path = folder / f'{Path(config).stem}_random.pth'
    torch.manual_seed(0)
    torch.save(
        dict(state_dict=random_model(Config.fromfile(config)).state_dict()), path
    )
    return str(path)


@pytest.fixture(scope='module')
def detector_weights(detector: str, folder: Path) -> str:
    return checkpoint_of(detector, folder)


@pytest.fixture(scope='module')
def segmentor_weights(segmentor: str, folder: Path) -> str:
    return checkpoint_of(segmentor, folder)


def test_detections_are_those_of_the_inferencer(
    predict: Main, detector: str, detector_weights: str, pictures: Path, tmp_path: Path
) -> None:
    from mmdet.apis import DetInferencer

    arguments = [detector, detector_weights, str(pictures), '--out', str(tmp_path)]
    assert predict([*arguments, '--score', '0.01', '--batch', '2']) == 0
    content = mmengine.load(tmp_path / 'predictions.json')
    assert [image['file_name'] for image in content['images']] == [
        '00000000.jpg',
        '00000001.jpg',
    ]
    assert content['categories'][0] == dict(id=1, name='circle')
    inferencer = DetInferencer(
        detector, detector_weights, device='cpu', show_progress=False
    )
    for image in content['images']:
        given = inferencer(str(pictures / image['file_name']))['predictions'][0]
        found = [a for a in content['annotations'] if a['image_id'] == image['id']]
        strong = [i for i, score in enumerate(given['scores']) if score >= 0.01]
        assert found and len(found) == len(strong)
        for annotation, index in zip(found, strong, strict=True):
            left, top, right, bottom = given['bboxes'][index]
            np.testing.assert_allclose(
                annotation['score'], given['scores'][index], atol=1e-5
            )
            assert annotation['category_id'] == given['labels'][index] + 1
            box = [left, top, right - left, bottom - top]
            np.testing.assert_allclose(annotation['bbox'], box, atol=1e-2)
        drawn = mmcv.imread(tmp_path / 'pictures' / image['file_name'])
        assert drawn.shape[:2] == (image['height'], image['width'])


def test_labels_are_those_of_the_inferencer(
    predict: Main,
    segmentor: str,
    segmentor_weights: str,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From a list on standard input; colours are those of the data set."""
    from mmseg.apis import MMSegInferencer

    files = sorted((data / 'ade' / 'images' / 'validation').iterdir())
    monkeypatch.setattr('sys.stdin', io.StringIO('\n'.join(map(str, files))))
    assert (
        predict([segmentor, segmentor_weights, '-', '--out', str(tmp_path), '--scores'])
        == 0
    )
    inferencer = MMSegInferencer(segmentor, segmentor_weights, device='cpu')
    palette = Config.fromfile(segmentor).test_dataloader.dataset.metainfo.palette
    for file in files:
        expected = (
            inferencer(str(file))['predictions'] + 1
        )  # in ADE20K's masks 0 is no class
        with Image.open(tmp_path / 'labels' / f'{file.stem}.png') as image:
            labels, colours = np.asarray(image), np.asarray(image.convert('RGB'))
        assert (labels == expected).all()
        assert (colours == np.asarray(palette)[labels - 1]).all()
        scores = np.load(tmp_path / 'scores' / f'{file.stem}.npy')
        assert (
            scores.shape == (7, *labels.shape)
            and (scores.argmax(0) == labels - 1).mean() > 0.99
        )
        assert (tmp_path / 'pictures' / f'{file.stem}.jpg').is_file()


def test_a_list_from_python(
    detector: str, detector_weights: str, pictures: Path, tmp_path: Path
) -> None:
    images = sorted(pictures.iterdir())
    given = dict(
        out=tmp_path / 'out', size='64', cfg_options={'model.test_cfg.max_per_img': 3}
    )
    request = Request(detector, detector_weights, images, score=0.0, **given)
    folder = predict_images(request)
    content = mmengine.load(folder / 'predictions.json')
    assert [image['file_name'] for image in content['images']] == [
        path.name for path in images
    ]
    assert len(content['annotations']) == 3 * len(images)


def test_a_video_stays_one(
    predict: Main, detector: str, detector_weights: str, pictures: Path, tmp_path: Path
) -> None:
    frame = mmcv.imread(pictures / '00000000.jpg')
    codec = cv2.VideoWriter.fourcc(*'mp4v')
    video = cv2.VideoWriter(str(tmp_path / 'a.mp4'), codec, 5, frame.shape[1::-1])
    for _ in range(3):
        video.write(frame)
    video.release()
    arguments = [
        detector,
        detector_weights,
        str(tmp_path / 'a.mp4'),
        '--out',
        str(tmp_path / 'o'),
    ]
    assert predict([*arguments, '--size', '48']) == 0
    drawn = cv2.VideoCapture(str(tmp_path / 'o' / 'a.mp4'))
    assert drawn.get(cv2.CAP_PROP_FRAME_COUNT) == 3 and drawn.get(cv2.CAP_PROP_FPS) == 5
    assert len(mmengine.load(tmp_path / 'o' / 'predictions.json')['images']) == 3


def test_a_stream_is_numbered_like_a_video(
    predict: Main,
    detector: str,
    detector_weights: str,
    pictures: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A camera with two frames, of which Ctrl-C stops the third."""
    frame = mmcv.imread(pictures / '00000000.jpg')
    opened = []

    class Camera:
        def __init__(self, given: int | str) -> None:
            opened.append(given)
            self.left = 2

        def isOpened(self) -> bool:  # noqa: N802
            return True

        def get(self, property: int) -> float:
            return 10.0 if property == cv2.CAP_PROP_FPS else -1.0

        def read(self) -> tuple[bool, np.ndarray]:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            return True, frame

        def release(self) -> None:
            pass

    monkeypatch.setattr('rope_dense.data.images.sources.cv2.VideoCapture', Camera)
    for given, name in (
        ('0', 'camera0'),
        ('rtsp://host:554/live/door.1?x=2', 'door_1'),
    ):
        out = tmp_path / name
        assert (
            predict(
                [detector, detector_weights, given, '--out', str(out), '--size', '48']
            )
            == 0
        )
        names = [
            i['file_name'] for i in mmengine.load(out / 'predictions.json')['images']
        ]
        assert names == [f'{name}/000000.jpg', f'{name}/000001.jpg']
        assert (out / f'{name}.mp4').is_file()
    assert opened[0] == 0 and 'rtsp://host:554/live/door.1?x=2' in opened


@pytest.mark.parametrize('task', ['detector', 'segmentor'])
def test_large_images_go_in_tiles(
    predict: Main,
    request: pytest.FixtureRequest,
    task: str,
    tmp_path: Path,
    pictures: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Four, by one model: it is built once, its checkpoint is read once, and once for its hash."""
    pytest.importorskip('rasterio')
    config, weights = (
        request.getfixturevalue(name) for name in (task, f'{task}_weights')
    )
    small, built, hashed, opened = pictures / '00000000.jpg', [], [], []
    folder, out = tmp_path / 'pictures', tmp_path / 'out'
    large = cv2.resize(mmcv.imread(small), (100, 70))
    for number in range(4):
        mmcv.imwrite(large, str(folder / f'large{number}.png'))
    (folder / 'small.jpg').write_bytes(small.read_bytes())
    init, hash_of = mmengine.model.BaseModel.__init__, identity.hash_of
    read_file = read.read_local_checkpoint
    monkeypatch.setattr(
        read,
        'read_local_checkpoint',
        lambda *file: (opened.append(file[0]), read_file(*file))[1],
    )
    monkeypatch.setattr(
        mmengine.model.BaseModel,
        '__init__',
        lambda self, *given, **named: (built.append(self), init(self, *given, **named))[
            1
        ],
    )
    monkeypatch.setattr(
        identity, 'hash_of', lambda path: (hashed.append(path), hash_of(path))[1]
    )
    options = ['--score', '0', '--scores', '--tile-above', '0.0065']
    assert predict([config, weights, str(folder), '--out', str(out), *options]) == 0
    assert len(built) == 1 and hashed == [weights] and opened == [weights]
    said = capsys.readouterr().out
    tiled = ': in tiles, without --scores\n' if task == 'segmentor' else ': in tiles\n'
    assert said.count(tiled) == 4 and ' of 64 pixels, ' in said
    names = [*(f'large{number}' for number in range(4)), 'small']
    assert sorted(path.stem for path in (out / 'pictures').iterdir()) == names
    hidden = [path.name for path in out.rglob('.rope_dense/**/*') if path.is_file()]
    assert hidden == ['record.jsonl']
    assert not [*out.rglob('*unfinished*')]
    if task == 'detector':
        content = mmengine.load(out / 'predictions.json')
        assert [image['width'] for image in content['images']] == [100] * 4 + [96]
        assert {a['image_id'] for a in content['annotations']} == {1, 2, 3, 4, 5}
    else:
        assert [path.name for path in (out / 'scores').iterdir()] == ['small.npy']
        with Image.open(out / 'labels' / 'large0.png') as image:
            assert image.size == (100, 70)


def test_16_bits_of_another_range_are_said(
    predict: Main,
    detector: str,
    detector_weights: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """12 bits in 16 are black for a model that was trained on 8."""
    dark = np.full((64, 96, 3), 4000, np.uint16)
    for name in ('a.png', 'b.png'):
        cv2.imwrite(str(tmp_path / name), dark)
    given = [detector, detector_weights, str(tmp_path), '--out', str(tmp_path / 'out')]
    assert predict(given) == 0
    said = capsys.readouterr().out
    assert (
        f'{tmp_path}/a.png: 16 bits of another range than in training: its values end at 4000, '
        '0% of them are above 65535, which is white: give own.max_value in the training\n'
    ) in said


def test_what_cannot_be_read_is_named(
    predict: Main,
    detector: str,
    detector_weights: str,
    pictures: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / 'in'
    folder.mkdir()
    model = [detector, detector_weights]
    (folder / 'notes.txt').touch()
    assert predict([*model, str(folder), '--out', str(tmp_path / 'o')]) == 2
    assert (
        'Looked for .jpg, ' in (said := capsys.readouterr().err)
        and 'there are 1 .txt' in said
    )
    (folder / 'broken.jpg').write_bytes(b'no image')
    assert predict([*model, str(folder), '--out', str(tmp_path / 'o')]) == 2
    assert 'broken.jpg: cannot be read as an image' in capsys.readouterr().err
    (folder / 'good.jpg').write_bytes((pictures / '00000000.jpg').read_bytes())
    (folder / 'b.jpg').mkdir()
    (folder / 'link.png').symlink_to('nowhere.png')
    Image.new('RGB', (2000, 3)).save(
        folder / 'line.png'
    )  # padded: resized, it has no height
    Image.new('RGB', (150, 130)).save(folder / 'large.png')
    (folder / 'large.png').write_bytes((folder / 'large.png').read_bytes()[:60])
    two = [Image.new('RGB', (90, 80), colour) for colour in ('red', 'blue')]
    two[0].save(folder / 'two.tif', save_all=True, append_images=two[1:])
    for name in ('clip.mp4', 'x.ppm'):
        (folder / name).touch()
    out = folder / 'o'
    reasons = {
        'b.jpg': 'a folder',
        'broken.jpg': 'cannot be read as an image',
        'link.png': 'a link to a file that is not there',
        'large.png': '',
    }
    for images in ('2', '1'):  # the second time, results are in the folder, too
        arguments = ['--out', str(out), '--batch', images, '--tile-above', '0.015']
        assert predict([*model, str(folder), *arguments]) == 0
        said = capsys.readouterr().out
        for name, reason in reasons.items():
            assert f'not predicted: {folder / name}: {reason}' in said
        assert f'{folder / "two.tif"}: 2 pages, the first is predicted' in said
        assert 'not predicted: 1 video (give it alone), 1 .ppm' in said
        found = mmengine.load(out / 'predictions.json')['images']
        names = [(image['file_name'], image['picture']) for image in found]
        assert names == [
            ('good.jpg', 'pictures/good.jpg'),
            ('line.png', 'pictures/line.jpg'),
            ('two.tif', 'pictures/two.jpg'),
        ]
    assert predict([*model, str(tmp_path / 'nowhere')]) == 2
    assert 'nowhere: no such file or folder' in capsys.readouterr().err


@pytest.mark.slow
def test_each_of_many_pictures_is_predicted_or_named(
    predict: Main,
    detector: str,
    detector_weights: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Sides from 1 to 3,000 pixels, five modes, seven formats, cut files; a seed of the week."""
    random = Random(seed_of_the_week())
    folder, names = tmp_path / 'in', []
    folder.mkdir()
    for number in range(40):
        size = [round(3000 ** random.random()) for _ in range(2)]
        mode = random.choice(('RGB', 'RGBA', 'L', 'P', 'I;16'))
        formats = (
            ('png', 'tif') if mode == 'I;16' else ('png', 'bmp', 'gif', 'webp', 'tif')
        )
        formats += ('jpg', 'jpeg') if mode in ('RGB', 'L') else ()
        names.append(name := f'{number:02d}.{random.choice(formats)}')
        Image.new(mode, size).save(folder / name)
        if random.random() < 0.1:
            content = (folder / name).read_bytes()
            (folder / name).write_bytes(content[: random.randrange(len(content))])
    model = [detector, detector_weights]
    assert (
        predict([*model, str(folder), '--out', str(tmp_path / 'o'), '--batch', '3'])
        == 0
    )
    said = capsys.readouterr().out
    found = mmengine.load(tmp_path / 'o' / 'predictions.json')['images']
    predicted = {image['file_name'] for image in found}
    assert len(predicted) == len(found) > 10
    for name in names:
        assert (name in predicted) != (f'{name}: ' in said), f'{name} in {said}'


@pytest.mark.parametrize('task', ['detector', 'segmentor'])
def test_an_interrupted_run_goes_on(
    predict: Main,
    task: str,
    pictures: Path,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same command does; another begins anew. A result is of the whole folder in the end."""
    folder, out = tmp_path / 'in', tmp_path / 'out'
    folder.mkdir()
    given = cv2.imread(str(pictures / '00000000.jpg'))
    for name in ('a.png', 'b.jpg', 'c.png'):
        cv2.imwrite(str(folder / name), given)
    Image.open(folder / 'a.png').save(folder / 'd.gif', save_all=True)
    model = [request.getfixturevalue(task), request.getfixturevalue(f'{task}_weights')]
    command = [*model, str(folder), '--out', str(out), '--score', '0.01']
    read, seen = sources.read_image, []
    monkeypatch.setattr('rope_dense.predict.place.SECONDS', 0)

    def stopped(path: Path, *more: object) -> np.ndarray | None:
        seen.append(path.name)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return read(path, *more)

    monkeypatch.setattr(sources, 'read_image', stopped)
    assert predict(command) == 130
    said = f'stopped; 2 of 4 images are in {out}: the same command continues'
    assert said in capsys.readouterr().err
    (content,) = out.glob('.rope_dense/predict/0/images/content')
    with content.open('a') as file:
        file.write('{"file_name": "c.p')  # a line that a killed process was writing
    assert predict(command) == 0
    assert seen == ['a.png', 'b.jpg', 'c.png', 'c.png', 'd.gif']
    assert '2 of 4 images were predicted before' in capsys.readouterr().out
    assert not content.exists()
    if task == 'detector':
        content = mmengine.load(out / 'predictions.json')
        assert [image['file_name'] for image in content['images']] == [
            *('a.png', 'b.jpg', 'c.png', 'd.gif')
        ]
        objects = [
            [
                (a['bbox'], a['score'])
                for a in content['annotations']
                if a['image_id'] == image
            ]
            for image in (1, 3)
        ]
        assert objects[0] == objects[1] != []
    assert predict([*command, '--size', '64']) == 0
    assert seen[5:] == ['a.png', 'b.jpg', 'c.png', 'd.gif']


@pytest.mark.parametrize('changed', ['config', 'weights'])
def test_a_run_with_another_model_begins_anew(
    predict: Main,
    changed: str,
    detector: str,
    detector_weights: str,
    pictures: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """B17: the config was edited, or the checkpoint replaced; the command is the same."""
    config, weights = tmp_path / 'config.py', tmp_path / 'weights.pth'
    config.write_text(f'_base_ = {detector!r}\n')
    weights.write_bytes(Path(detector_weights).read_bytes())
    command = [str(config), str(weights), str(pictures), '--out', str(tmp_path / 'out')]
    monkeypatch.setattr('rope_dense.predict.place.SECONDS', 0)
    with monkeypatch.context() as patch:
        images = iter([mmcv.imread(pictures / '00000000.jpg')])
        patch.setattr(sources, 'read_image', lambda *_: interrupt(images))
        assert predict(command) == 130
    if changed == 'config':
        config.write_text(
            f'_base_ = {detector!r}\nmodel = dict(test_cfg=dict(max_per_img=5))\n'
        )
    else:
        torch.save(torch.load(weights) | dict(more=1), weights)
    assert predict(command) == 0
    said = capsys.readouterr().out
    words = 'config (with its options)' if changed == 'config' else 'checkpoint'
    assert f'other settings: {words}, SHA-256 ' in said and ': begun anew' in said
    assert 'predicted before' not in said
    assert len(mmengine.load(tmp_path / 'out' / 'predictions.json')['images']) == 2


def interrupt(images: Iterator[np.ndarray]) -> np.ndarray:
    """The next image; Ctrl-C after the last one."""
    for image in images:
        return image
    raise KeyboardInterrupt


@pytest.mark.parametrize('kind', ['gray', 'rgba', 'gray16', 'rgb'])
def test_images_are_read_as_mmdet_reads_them(tmp_path: Path, kind: str) -> None:
    """Three channels of 8 bits, as a pipeline gets them: no alpha, the high 8 of 16 bits."""
    from mmdet.registry import TRANSFORMS

    from rope_dense.data.images.sources import read_image

    ramp = np.arange(0, 256, 4, dtype=np.uint8).reshape(8, 8)
    pixels = dict(
        gray=ramp,
        rgb=np.stack([ramp, ramp // 2, 255 - ramp], axis=-1),
        rgba=np.stack([ramp, ramp // 2, 255 - ramp, ramp], axis=-1),
        gray16=ramp.astype(np.uint16) * 256 + 17,
    )[kind]
    path = tmp_path / 'a.png'
    Image.fromarray(pixels).save(path)
    loaded = TRANSFORMS.build(dict(type='LoadImageFromFile'))(dict(img_path=str(path)))[
        'img'
    ]
    expected = (
        pixels[..., 2::-1] if kind.startswith('rgb') else np.stack([ramp] * 3, axis=-1)
    )
    assert loaded.dtype == np.uint8 and (loaded == expected).all()
    assert (read_image(path) == loaded).all()
    path.write_bytes(b'')  # what is left of a file on a full disk
    with pytest.raises(ValueError, match=r'a\.png: cannot be read as an image'):
        read_image(path)
