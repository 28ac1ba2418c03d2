"""Predicting into a folder that has results: what the user corrected stays, and nothing is lost."""

import os
import shutil
from pathlib import Path

import cv2
import mmengine
import numpy as np
import pytest
import torch
from mmengine.config import Config
from PIL import Image

from helpers.tool_names import Main
from rope_dense.data.images import sources
from rope_dense.predict.files import DetectionFiles
from rope_dense.project.model import random_model
from rope_dense_command import command

FORMATS = ['--write', 'coco', 'yolo', 'voc', 'crops', '--score', '0.01']


@pytest.fixture(scope='module')
def predict() -> Main:
    return command('predict')


@pytest.fixture(scope='module')
def model(detector: str, weights: str) -> list[str]:
    return [detector, weights]


@pytest.fixture(scope='module')
def segmenting(segmentor: str, folder: Path) -> list[str]:
    path = folder / 'again.pth'
    torch.save(
        dict(state_dict=random_model(Config.fromfile(segmentor)).state_dict()), path
    )
    return [segmentor, str(path)]


@pytest.fixture
def pictures(data: Path, tmp_path: Path) -> Path:
    """One picture in a folder; others are there to be added."""
    (tmp_path / 'new').mkdir()
    shutil.copy(data / 'coco' / 'val2017' / '00000000.jpg', tmp_path / 'new' / 'a.jpg')
    return tmp_path / 'new'


def add_picture(path: Path, turned: int = cv2.ROTATE_180) -> None:
    path.parent.mkdir(exist_ok=True)
    picture = cv2.imread(str(path.parent.with_name('new') / 'a.jpg'))
    cv2.imwrite(str(path), cv2.rotate(picture, turned))


def test_corrected_labels_stay_while_more_is_predicted(
    predict: Main, model: list[str], pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In place, as in docs/pre_labelling.md: of the same pictures, and of others."""
    out = pictures.with_name('pre')
    given = [*model, str(pictures), '--out', str(out), *FORMATS]
    assert predict(given) == 0
    labels, boxes = out / 'yolo/labels/a.txt', out / 'voc/Annotations/a.xml'
    assert labels.read_text().count('\n') > 2 < len([*(out / 'crops').rglob('*.jpg')])
    labels.write_text('0 0.5 0.5 0.25 0.25\n')
    (out / 'crops' / 'mine').mkdir()
    (out / 'crops' / 'mine' / 'a.jpg').write_bytes(b'mine')
    add_picture(pictures / 'b.jpg')
    assert predict(given) == 0
    assert f'{labels} was edited, and stays as it is' in capsys.readouterr().out
    assert labels.read_text() == '0 0.5 0.5 0.25 0.25\n' and boxes.is_file()
    assert (out / 'yolo/labels/b.txt').is_file()
    add_picture(pictures.with_name('more') / 'c.jpg')
    assert (
        predict([*model, str(pictures.with_name('more')), '--out', str(out), *FORMATS])
        == 0
    )
    assert labels.read_text() == '0 0.5 0.5 0.25 0.25\n'
    assert {path.stem for path in labels.parent.iterdir()} == {'a', 'b', 'c'}
    listed = (out / 'voc/ImageSets/Main/default.txt').read_text()
    assert listed == 'a\nb\nc\n' and (out / 'crops/mine/a.jpg').read_bytes() == b'mine'
    # Another picture of the name, whose labels these are not.
    add_picture(pictures.with_name('others') / 'a.jpg', cv2.ROTATE_90_CLOCKWISE)
    others = str(pictures.with_name('others'))
    assert predict([*model, others, '--out', str(out), *FORMATS]) == 2
    assert f'{labels} is an edited result of another image' in capsys.readouterr().err
    # A higher score leaves no crop behind; edited files of all images are not replaced.
    assert predict([*given, '--score', '1']) == 0
    assert not [*(out / 'crops').rglob('[ab]_*.jpg')] and [
        *(out / 'crops').rglob('c_*.jpg')
    ]
    (out / 'predictions.json').write_text('{}')
    assert predict(given) == 2
    assert f'{out}/predictions.json was changed after' in capsys.readouterr().err


def test_labels_of_other_classes_are_not_mixed(
    predict: Main, model: list[str], pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = pictures.with_name('pre')
    assert predict([*model, str(pictures), '--out', str(out), '--write', 'yolo']) == 0
    add_picture(pictures.with_name('more') / 'b.jpg')
    names = ['test_dataloader.dataset.metainfo.classes=a,b,c,d,e,f']
    given = [
        *model,
        str(pictures.with_name('more')),
        '--out',
        str(out),
        '--write',
        'yolo',
    ]
    assert predict([*given, '--cfg-options', *names]) == 2
    message = f'{out}/yolo/classes.txt has other classes, for labels of other images such as {out}'
    assert (
        message in capsys.readouterr().err and not (out / 'yolo/labels/b.txt').exists()
    )


def test_an_interrupted_run_knows_its_images(
    predict: Main,
    model: list[str],
    pictures: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One is replaced by another picture and one is removed, before the same command continues."""
    for name in 'bcd':
        add_picture(pictures / f'{name}.jpg')
    given = [
        *model,
        str(pictures),
        '--out',
        str(pictures.with_name('out')),
        '--score',
        '0.01',
    ]
    read, left = sources.read_image, iter(range(3))

    def stopped(path: Path, *more: object) -> np.ndarray:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return read(path, *more)

    monkeypatch.setattr('rope_dense.predict.place.SECONDS', 0)
    with monkeypatch.context() as patch:
        patch.setattr(sources, 'read_image', stopped)
        assert predict(given) == 130
    about = (pictures / 'b.jpg').stat()
    add_picture(pictures / 'b.jpg', cv2.ROTATE_90_CLOCKWISE)
    os.utime(pictures / 'b.jpg', ns=(about.st_atime_ns, about.st_mtime_ns + 1))
    (pictures / 'c.jpg').unlink()
    assert predict(given) == 0
    assert '1 of 3 images were predicted before' in capsys.readouterr().out
    found = mmengine.load(pictures.with_name('out') / 'predictions.json')
    given[-3] = str(pictures.with_name('anew'))
    assert predict(given) == 0
    assert found == mmengine.load(pictures.with_name('anew') / 'predictions.json')
    assert [image['file_name'] for image in found['images']] == [
        'a.jpg',
        'b.jpg',
        'd.jpg',
    ]


@pytest.mark.parametrize('place', ['same', 'above', 'above by a link'])
def test_results_do_not_go_where_the_images_are(
    predict: Main,
    model: list[str],
    pictures: Path,
    place: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(pictures.parent)
    Path('link').symlink_to('.')
    out = {'same': 'new', 'above': '.', 'above by a link': 'link'}[place]
    assert predict([*model, 'new', '--out', out]) == 2
    assert f'error: --out {out} contains the images of new: ' in capsys.readouterr().err
    assert {path.name for path in Path.cwd().iterdir()} == {'new', 'link'}


def test_the_picture_that_is_read_is_not_replaced(
    predict: Main,
    model: list[str],
    segmenting: list[str],
    pictures: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A picture, a video and a mask, before any model is built."""
    root = pictures.parent
    monkeypatch.chdir(root)
    for folder in ('pictures', 'labels'):
        Path(folder).mkdir()
    shutil.copy('new/a.jpg', 'pictures/a.jpg')
    Image.new('L', (96, 64)).save('labels/a.png')
    video = cv2.VideoWriter('drive.mp4', cv2.VideoWriter.fourcc(*'mp4v'), 5, (96, 64))
    for _ in range(3):
        video.write(np.zeros((64, 96, 3), np.uint8))
    video.release()
    before = {path: path.read_bytes() for path in root.rglob('*.*') if path.is_file()}

    def build(*_: object) -> None:
        pytest.fail('a model is built')

    monkeypatch.setattr('rope_dense.predict.images.build_inferencer', build)
    cases = {
        'pictures/a.jpg': (model, 'pictures/a.jpg is read by this command'),
        'drive.mp4': (model, 'drive.mp4 is read by this command'),
        'new/a.jpg': (segmenting, 'pictures/a.jpg was not written by rope-dense'),
    }
    for given, (files, says) in cases.items():
        assert predict([*files, given, '--out', '.']) == 2
        assert says in capsys.readouterr().err
    (root / 'pictures' / 'a.jpg').rename(root / 'b.jpg')
    assert predict([*segmenting, 'new/a.jpg', '--out', '.']) == 2
    assert 'labels/a.png was not written by rope-dense' in capsys.readouterr().err
    (root / 'b.jpg').rename(root / 'pictures' / 'a.jpg')
    assert {
        path: path.read_bytes() for path in root.rglob('*.*') if path.is_file()
    } == before


def test_results_of_earlier_commands_are_no_images(
    predict: Main, model: list[str], pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Below the input, in another folder of results; a folder of results alone has no image."""
    for name in ('first', 'second'):
        assert predict([*model, str(pictures), '--out', str(pictures / name)]) == 0
        found = mmengine.load(pictures / name / 'predictions.json')['images']
        assert [image['file_name'] for image in found] == ['a.jpg']
    capsys.readouterr()
    assert (
        predict([*model, str(pictures / 'first'), '--out', str(pictures / 'third')])
        == 2
    )
    assert (
        'the 1 images in it are results of earlier commands' in capsys.readouterr().err
    )
    given = str(pictures / 'first' / 'pictures')  # asked for by name
    assert predict([*model, given, '--out', str(pictures / 'third')]) == 0


@pytest.fixture
def fails_at_b(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """The error that is raised while the prediction of b.jpg is written."""
    add, errors = DetectionFiles.add, list[Exception]()

    def failing(
        self: DetectionFiles, source: sources.Source, *more: object
    ) -> np.ndarray:
        if source.path.name == 'b.jpg':
            raise errors[0]
        return add(self, source, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(DetectionFiles, 'add', failing)
    return errors


def test_an_error_of_one_image_is_its_own(
    predict: Main,
    model: list[str],
    pictures: Path,
    fails_at_b: list[Exception],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The others are predicted, by the same command again, too; a full disk ends all."""
    for name in 'bc':
        add_picture(pictures / f'{name}.jpg')
    fails_at_b.append(ValueError('cannot be drawn'))
    given = [*model, str(pictures), '--out', str(pictures.with_name('out'))]
    for _ in range(2):
        assert predict(given) == 0
        assert (
            f'not predicted: {pictures / "b.jpg"}: cannot be drawn'
            in capsys.readouterr().out
        )
        found = mmengine.load(pictures.with_name('out') / 'predictions.json')['images']
        assert [image['file_name'] for image in found] == ['a.jpg', 'c.jpg']
    fails_at_b[0] = OSError(28, 'No space left on device', 'pictures/b.jpg')
    assert predict(given) == 2
    assert 'error: pictures/b.jpg: No space left on device' in capsys.readouterr().err
