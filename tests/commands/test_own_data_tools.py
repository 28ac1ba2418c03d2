"""`rope-dense convert-data` and `browse-data`, as a user calls them."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.tool_names import Main
from rope_dense.data.labels.splits import digest_of, is_for_validation
from rope_dense_command import command


@pytest.fixture(scope='module')
def convert() -> Main:
    return command('convert_data')


@pytest.fixture(scope='module')
def browse() -> Main:
    return command('browse_data')


def yolo(root: Path, count: int) -> Path:
    for folder in ('images', 'labels'):
        (root / folder / 'train').mkdir(parents=True)
    for index in range(count):
        Image.new('RGB', (20, 10)).save(root / 'images' / 'train' / f'{index}.png')
        (root / 'labels' / 'train' / f'{index}.txt').write_text('0 0.5 0.5 0.5 0.5\n')
    (root / 'classes.txt').write_text('cat\n')
    return root / 'labels' / 'train'


def test_a_share_of_the_images_is_for_validation(
    convert: Main, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = yolo(tmp_path, 10), tmp_path / 'annotations' / 'train.json'
    assert convert(['yolo', str(source), str(out), '--val-share', '0.2']) == 0
    parts = [
        json.loads((out.parent / f'{name}.json').read_text())
        for name in ('train', 'val')
    ]
    names = [{image['file_name'] for image in part['images']} for part in parts]
    assert len(names[0] | names[1]) == 10 and all(names) and not names[0] & names[1]
    for part in parts:
        images = {image['id'] for image in part['images']}
        assert {annotation['image_id'] for annotation in part['annotations']} == images
    assert '7 training images and 3 validation images' in capsys.readouterr().out
    before = out.read_bytes()
    assert convert(['yolo', str(source), str(out)]) == 2
    assert (
        'nothing is written over' in capsys.readouterr().err
        and out.read_bytes() == before
    )


@pytest.mark.parametrize('share', [0.2, 0.3, 0.4, 0.7])
def test_the_share_for_validation_is_the_given_one(share: float) -> None:
    """And as before for one of five, so that no image of an earlier split moves."""
    names = [f'{number}' for number in range(4000)]
    found = [is_for_validation(name, share) for name in names]
    assert np.mean(found) == pytest.approx(share, abs=0.02)
    if share == 0.2:
        assert found == [digest_of(name)[0] % 5 == 0 for name in names]


def test_a_file_lists_the_images(
    convert: Main, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, listed = yolo(tmp_path, 4), tmp_path / 'test.txt'
    listed.write_text('1\n3.png -1\n\n')
    given = [
        'yolo',
        str(source),
        str(tmp_path / 'out.json'),
        '--split-file',
        str(listed),
    ]
    assert convert(given) == 0
    content = json.loads((tmp_path / 'out.json').read_text())
    assert [image['file_name'] for image in content['images']] == ['1.png', '3.png']
    listed.write_text('nothing\n')
    assert convert([*given[:2], str(tmp_path / 'none.json'), *given[3:]]) == 2
    assert 'none of its 0 images has a label file' in capsys.readouterr().err
    assert not (tmp_path / 'none.json').exists()


def test_colours_get_names_from_the_user(
    convert: Main, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / 'masks').mkdir()
    pixels = np.array([[[255, 0, 0]] * 3, [[0, 0, 255]] * 2 + [[255, 0, 0]]], np.uint8)
    Image.fromarray(pixels).save(tmp_path / 'masks' / 'a.png')
    arguments = ['colours', str(tmp_path / 'masks'), str(tmp_path / 'out')]
    assert convert(arguments) == 0
    listing = tmp_path / 'out' / 'classes.txt'
    assert listing.read_text() == 'class_0 #ff0000\nclass_1 #0000ff\n'
    assert convert(arguments) == 2
    assert 'exists' in capsys.readouterr().err


@pytest.mark.parametrize(
    'arguments, says',
    [
        (['yolo', 'nowhere', 'a.json'], 'nowhere: no such file or folder'),
        (['yolo', '.', 'a.txt'], 'give a name that ends with .json'),
        (
            ['yolo', '.', 'val.json', '--val-share', '0.2'],
            'with --val-share, val.json is the',
        ),
        (
            ['colours', '.', 'out', '--val-share', '0.2'],
            '--val-share, --split-file: for boxes',
        ),
    ],
)
def test_wrong_requests(
    convert: Main,
    arguments: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert convert(arguments) == 2
    assert says in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    'task', ['detector', pytest.param('segmentor', marks=pytest.mark.slow)]
)
def test_samples_are_drawn_on_what_the_model_gets(
    browse: Main, request: pytest.FixtureRequest, task: str, tmp_path: Path
) -> None:
    """Flips and crops differ with the seed; labels are drawn in colour."""
    config = request.getfixturevalue(task)
    pictures = []
    for seed in (0, 0, 1):
        out = tmp_path / f'{len(pictures)}'
        arguments = [config, '--count', '2', '--seed', str(seed), '--out', str(out)]
        assert browse(arguments) == 0
        files = sorted(out.glob('*.png'))
        assert [file.name for file in files] == [
            '0000_00000000.png',
            '0001_00000001.png',
        ]
        pictures.append([np.asarray(Image.open(file)) for file in files])
    same, other = pictures[1:]
    assert all((a == b).all() for a, b in zip(pictures[0], same, strict=True))
    assert any(
        a.shape != b.shape or (a != b).any()
        for a, b in zip(pictures[0], other, strict=True)
    )


@pytest.mark.parametrize('task', ['detector', 'segmentor'])
def test_labels_of_the_original_image_are_drawn_on_the_resized_one(
    browse: Main,
    request: pytest.FixtureRequest,
    task: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Validation loads labels after the image was resized."""
    if task == 'detector':
        from mmdet.visualization import DetLocalVisualizer as Visualizer
    else:
        from mmseg.visualization import SegLocalVisualizer as Visualizer
    drawn: list[tuple] = []
    draw = Visualizer.add_datasample

    def note(*args, **settings) -> None:
        drawn.append(args[2:])
        draw(*args, **settings)

    monkeypatch.setattr(Visualizer, 'add_datasample', note)
    for scale in ('(96,64)', '(192,128)'):
        option = f'val_dataloader.dataset.pipeline.1.scale={scale}'
        given = ['--split', 'val', '--count', '1', '--out', str(tmp_path / scale)]
        config = request.getfixturevalue(task)
        assert browse([config, *given, '--cfg-options', f'{option}']) == 0
    (small, few), (large, many) = drawn
    assert large.shape[0] == 2 * small.shape[0]
    if task == 'detector':
        boxes, twice = (sample.gt_instances.bboxes for sample in (few, many))
        assert len(boxes) and (2 * boxes - twice).abs().max() < 1e-3
    else:
        assert tuple(many.gt_sem_seg.data.shape[1:]) == large.shape[:2]
        halved = many.gt_sem_seg.data[:, ::2, ::2]
        assert (halved == few.gt_sem_seg.data).float().mean() > 0.99


def test_samples_replace_no_file_of_the_users(
    browse: Main, detector: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [detector, '--count', '2', '--out', str(tmp_path)]
    foreign = tmp_path / '0001_00000001.png'
    foreign.write_text('mine')
    assert browse(given) == 2
    assert f'{foreign} was not written by rope-dense' in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [foreign.name]
    foreign.unlink()
    assert browse(given) == browse(given) == 0


def test_a_split_that_is_not_there(
    browse: Main, detector: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ['--cfg-options', 'test_dataloader=None', '--out', str(tmp_path / 'o')]
    assert browse([detector, '--split', 'test', *options]) == 2
    assert '--split test: the config has no test_dataloader' in capsys.readouterr().err
