"""The commands that evaluate take the images that are asked for, and say with each figure which."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.field import coco, write
from helpers.rows import read_json
from rope_dense.engine.figure_source import FigureSource
from rope_dense.measure.results import read_results
from rope_dense_command import command

pytestmark = pytest.mark.usefixtures('surroundings')
SIZE = (64, 64)
NUMBERS = dict(train=8, valid=4, test=6)
MODEL = """
model = dict(
    backbone=dict(
        arch=dict(_delete_=True, embed_dims=32, depth=4, num_heads=2),
        out_indices=(1, 2, 3),
        layer_scale_init_value=None,
    ),
    neck=dict(in_channels=32, out_channels=32),
    encoder=dict(in_channels=(32, 32, 32), embed_dims=32, feedforward_channels=32),
    bbox_head=dict(embed_dims=32, decoder=dict(num_layers=2, feedforward_channels=32)),
)
"""


def export(folder: Path, number: int, seed: int) -> None:
    """Pictures of noise with an object of each class, and their COCO file, as Roboflow's."""
    draw = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    images = []
    objects = []
    for index in range(number):
        name = f'{folder.name}{index}.png'
        pixels = draw.integers(0, 255, (*SIZE, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / name)
        about = dict(id=index + 1, file_name=name, height=SIZE[0], width=SIZE[1])
        images.append(about)
        for category in (1, 2):
            box = [*draw.integers(0, 30, 2).tolist(), 20, 24]
            about = dict(image_id=index + 1, category_id=category, bbox=box, area=480)
            objects.append(about)
    text = coco(images, objects, {1: 'red', 2: 'green'})
    write(folder / '_annotations.coco.json', text)


@pytest.fixture(scope='module')
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on an export with three splits, and beside it a folder of test images alone."""
    root = tmp_path_factory.mktemp('evaluated')
    for seed, (split, number) in enumerate(NUMBERS.items()):
        export(root / 'data' / split, number, seed)
    export(root / 'alone', 10, 7)
    own = dict(data_root=str(root / 'data'), weights=None, size=64, epochs=1)
    own |= dict(batch_size=4, report=False)
    write(root / 'small.py', f"task = 'realtime'\nown = {own!r}\n{MODEL}")
    folder = root / 'run'
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        given = [str(root / 'small.py'), '--work-dir', str(folder)]
        assert command('train')(given) == 0
    return folder


@pytest.fixture(autouse=True)
def folder(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parent)


def test_a_training_says_what_its_figures_are_of(run: Path) -> None:
    (log,) = run.glob('*/*.log')
    record = read_json(run / 'best_checkpoint.json')
    source = FigureSource(**record['source'])
    assert log.read_text().count(f'figures: {source}\n') == 1
    assert (source.images, source.split, source.limit) == (4, 'validation', 100)


@pytest.mark.parametrize(
    'options, number, word',
    [
        ('', 4, 'validation'),
        ('--split train', 8, 'training'),
        ('--split test', 6, 'test'),
        ('--data data', 4, 'validation'),
        ('--data data/test', 6, 'labelled'),
        ('--data alone', 10, 'labelled'),
    ],
)
def test_a_test_has_the_images_that_are_asked_for(
    run: Path,
    options: str,
    number: int,
    word: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command('test')([str(run), *options.split()]) == 0
    printed, warned = capsys.readouterr()
    assert 'have changed' not in warned
    place = Path(options.partition('--data ')[2] or 'data')
    (line,) = [line for line in printed.splitlines() if 'CocoMetric' in line]
    assert line.startswith(f'{number} {word} images of ') and 'best_coco' in line
    assert f'{place}; CocoMetric' in line
    has_line = '6 images in test/ are neither' in printed
    assert has_line == (word == 'validation' and '--split' not in options)


def test_a_sweep_and_a_report_have_them_too(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(run), '--split', 'test', '--work-dir', str(tmp_path)]
    assert command('eval_resolutions')([*given, '--sizes', '64', '96']) == 0
    for row in read_results(tmp_path / 'resolutions.json')['rows']:
        source = FigureSource(**row['source'])
        assert (source.images, source.split) == (6, 'test')
    said = capsys.readouterr().out
    assert said.count(f'\n{source}\n') == 1 and '6 labelled images' in said
    assert command('report')([*given, '--out', str(tmp_path / 'page')]) == 0
    report = read_json(tmp_path / 'page' / 'report.json')
    source = FigureSource(**report['source'])
    assert (source.images, source.split, source.limit) == (6, 'test', 100)
    assert str(source) in (tmp_path / 'page' / 'index.html').read_text()


def test_a_split_that_is_not_there_is_named(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(run), '--data', 'alone', '--split', 'test']
    assert command('test')(given) == 2
    said = capsys.readouterr().err
    assert said.count('error: ') == 1 and '--split test: ' in said
