"""`rope-dense eval-resolutions` on small models: its figures, what it keeps, what it refuses."""

import csv
import json
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import cv2
import pytest
import torch
from mmengine.config import Config
from mmengine.runner import Runner

from helpers.rows import attributes, column, read_json
from helpers.small_configs import small_config
from rope_dense.engine.figure_source import FigureSource
from rope_dense.measure.evaluator import ResolutionLoop
from rope_dense.measure.plot import curves_of
from rope_dense.measure.results import read_results
from rope_dense.project.contents import configured_size
from rope_dense.project.load import load_config
from rope_dense.project.model import build_model
from rope_dense.utils.results import Results
from rope_dense_command import command

pytestmark = pytest.mark.usefixtures('surroundings')

Run = Callable[..., int]


@pytest.fixture(scope='module')
def run() -> Run:
    """Run the tool, under a name of its own: mmengine keeps loggers and visualizers by name."""
    main = command('eval_resolutions')
    numbers = count()

    def run(*argv: object, options: Sequence[str] = ()) -> int:
        name = f'sweep_{next(numbers)}'
        names = [f'experiment_name={name}', f'visualizer.name={name}']
        return main([*map(str, argv), '--cfg-options', *names, *options])

    return run


class Model:
    """A flagship, shrunk, with random weights in a file."""

    def __init__(self, name: str, folder: Path, data: Path) -> None:
        self.config = small_config(name, data, folder)
        self.checkpoint = folder / f'{name}.pth'
        model = build_model(load_config(str(self.config)))
        model.init_weights()
        torch.save(dict(state_dict=model.state_dict()), self.checkpoint)


@pytest.fixture(scope='module')
def segmentor(folder: Path, data: Path) -> Model:
    return Model('upernet_vit_rope_mixed', folder, data)


@pytest.fixture(scope='module')
def detector(folder: Path, data: Path) -> Model:
    return Model('dino_vitdet_rope_mixed', folder, data)


def figures(work_dir: Path) -> dict[tuple[str, str], dict]:
    rows = read_results(work_dir / 'resolutions.json')['rows']
    return {(row['size'], row['scaling']): row['metrics'] for row in rows}


def test_figures_are_those_of_single_tests(
    run: Run,
    segmentor: Model,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    argv = [segmentor.config, segmentor.checkpoint, '--work-dir', tmp_path]
    argv += '--sizes 48 64x80 --slide whole --scaling config linear:2'.split()
    assert run(*argv) == 0
    actual = figures(tmp_path)
    config = load_config(str(segmentor.config), (), str(tmp_path / 'single'))
    config.model.test_cfg = dict(mode='whole')
    linear = dict(type='linear', factor=2.0)
    for scaling, setting in (('config', None), ('linear:2', linear)):
        config.model.backbone.rope_scaling = setting
        for size, (height, width) in (('48', (48, 72)), ('64x80', (64, 80))):
            config.experiment_name = config.visualizer.name = f'single_{scaling}_{size}'
            config.test_dataloader.dataset.pipeline[1].scale = (width, height)
            config.load_from = str(segmentor.checkpoint)
            alone = Runner.from_cfg(config).test()
            assert actual[size, scaling] == pytest.approx(alone)
    assert actual['48', 'config'] != actual['64x80', 'config']
    printed = capsys.readouterr().out
    table = [line.split() for line in printed.splitlines()]
    header = ['size', 'scaling', 'window', 'mIoU', 'aAcc', 'mAcc', 's/image']
    first = table.index(header) + 1
    assert [line[:2] for line in table[first : first + 4]] == [
        ['48', 'config'], ['64x80', 'config'], ['48', 'linear:2'], ['64x80', 'linear:2']
    ]  # fmt: skip
    with open(tmp_path / 'resolutions.csv') as file:
        rows = list(csv.DictReader(file))
    assert column(rows, 'height') == ['48', '64'] * 2
    assert column(rows, 'width') == ['72', '80'] * 2
    for row in rows:
        assert float(row['mIoU']) == actual[row['size'], row['scaling']]['mIoU']
    for row in read_results(tmp_path / 'resolutions.json')['rows']:
        source = FigureSource(**row['source'])
        assert (source.images, source.evaluator) == (2, 'IoUMetric')
        assert source.checkpoint == Path(segmentor.checkpoint).name
        assert printed.count(str(source)) == 1
    assert column(rows, 'images') == ['2'] * 4
    assert cv2.imread(str(tmp_path / 'resolutions.png')).std() > 0


def test_a_detector_at_a_larger_size(run: Run, detector: Model, tmp_path: Path) -> None:
    arguments = ['--sizes', 96, '--window', 'auto', 3, '--work-dir', tmp_path]
    assert run(detector.config, detector.checkpoint, *arguments) == 0
    rows = read_results(tmp_path / 'resolutions.json')['rows']
    assert column(rows, 'window') == ['auto', '3']
    for row in rows:
        assert (row['height'], row['width']) == (96, 144)
        assert 'coco/bbox_mAP' in row['metrics']
    # No large object: COCO says -1.
    assert rows[0]['metrics']['coco/bbox_mAP_l'] is None


@pytest.fixture
def tested(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Sizes that were really tested; the metric of a size is its height."""
    sizes = []

    def run_on(loop: ResolutionLoop, config: Config, title: str) -> tuple[dict, float]:
        sizes.append(configured_size(config))
        if sizes[-1][0] == 99:
            raise KeyboardInterrupt
        return dict(mIoU=float(sizes[-1][0])), 0.5

    monkeypatch.setattr(ResolutionLoop, 'run_on', run_on)
    return sizes


def test_finished_figures_are_kept(
    run: Run,
    segmentor: Model,
    tmp_path: Path,
    tested: list,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [segmentor.config, segmentor.checkpoint, '--work-dir', tmp_path]
    arguments.append('--sizes')
    assert run(*arguments, 32, 99, 64) == 130
    assert 'stopped; 1 results are in' in capsys.readouterr().err
    assert figures(tmp_path) == {('32', 'config'): dict(mIoU=32.0)}
    assert run(*arguments, 32, 64) == 0
    assert [size[0] for size in tested] == [32, 99, 64]
    assert '(reused)' in capsys.readouterr().out
    assert run(*arguments, 64, '--overwrite') == 0
    assert len(tested) == 4
    assert list(figures(tmp_path)) == [('64', 'config')]
    assert not list(tmp_path.glob('*.partial'))


def test_a_detector_that_finds_no_box(
    run: Run,
    detector: Model,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """C1, S2: mmdet's metric is empty then; earlier versions stored that, and stopped each time."""
    arguments = [detector.config, detector.checkpoint, '--work-dir', tmp_path]
    arguments += ['--sizes', 64]
    none = ['model.test_cfg.max_per_img=0']
    assert run(*arguments, options=none) == 0
    kinds = ('mAP', 'mAP_50', 'mAP_75', 'mAP_s', 'mAP_m', 'mAP_l')
    expected = {f'coco/bbox_{kind}': 0 for kind in kinds}
    assert figures(tmp_path) == {('64', 'config'): expected}
    file = tmp_path / 'resolutions.json'
    stored = read_json(file)
    stored['rows'][0]['metrics'] = {}
    Results(tmp_path, file.name).write_text(file, json.dumps(stored))
    capsys.readouterr()
    assert run(*arguments, options=none) == 0
    assert figures(tmp_path) == {('64', 'config'): expected}
    assert '(reused)' not in capsys.readouterr().out


def test_an_open_factor_is_of_the_training(
    run: Run,
    detector: Model,
    tmp_path: Path,
    tested: list,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """S3: in training the detector saw 64 x 96 pixels, in its pre-training 32 x 32."""
    backbones = ['model.backbone.img_size=32']
    arguments = [detector.config, detector.checkpoint, '--work-dir', tmp_path]
    arguments += ['--scaling', 'linear', 'linear+log', 'linear:pretrain', '--sizes']
    assert run(*arguments, 48, 96, options=backbones) == 0
    rows = read_results(tmp_path / 'resolutions.json')['rows']
    expected = ['linear:1', 'linear:1.5', 'linear:1+log', 'linear:1.5+log']
    assert column(rows, 'scaling') == expected + ['linear:pretrain'] * 2
    curves = curves_of([read_results(tmp_path / 'resolutions.json')], 'mIoU')
    assert column(attributes(curves, 'setting'), 'scaling') == arguments[5:8]
    table = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert ['96', 'linear:1.5'] in table
    assert ['96', 'linear:1.5+log'] in table
    assert run(*arguments, 96, '--train-size', '48', options=backbones) == 0
    row = read_results(tmp_path / 'resolutions.json')['rows'][6]
    assert (row['scaling'], len(tested)) == ('linear:2', 8)


def test_a_run_is_given_by_its_folder(
    run: Run,
    segmentor: Model,
    tmp_path: Path,
    tested: list,
) -> None:
    Config.fromfile(segmentor.config).dump(tmp_path / 'roads.py')
    (tmp_path / 'best_mIoU_iter_2.pth').symlink_to(segmentor.checkpoint)
    assert run(tmp_path, '--sizes', 64) == 0
    assert list(figures(tmp_path)) == [('64', 'config')]
    assert len(tested) == 1


def test_figures_of_something_else_are_not_taken_for_these(
    run: Run,
    segmentor: Model,
    tmp_path: Path,
    tested: list,
    capsys: pytest.CaptureFixture[str],
) -> None:
    checkpoint = tmp_path / 'weights.pth'
    weights = torch.load(segmentor.checkpoint)
    torch.save(weights, checkpoint)
    arguments = [segmentor.config, checkpoint, '--work-dir', tmp_path / 'work']
    arguments += ['--sizes', 64]
    assert run(*arguments) == 0
    assert run(*arguments, options=['test_dataloader.dataset.indices=1']) == 2
    message = capsys.readouterr().err
    assert 'figures of another config' in message
    assert '--overwrite' in message
    weights['state_dict']['backbone.cls_token'] += 1
    torch.save(weights, checkpoint)
    assert run(*arguments) == 2
    assert 'figures of another checkpoint (' in capsys.readouterr().err
    for name in ('resolutions.json', 'resolutions.csv', 'resolutions.png'):
        file = tmp_path / 'work' / name
        before = file.read_bytes()
        file.write_text('mine')
        assert run(*arguments, '--overwrite') == 2
        assert f'{file} was changed after' in capsys.readouterr().err
        assert file.read_text() == 'mine'
        file.write_bytes(before)
    assert len(tested) == 1


def test_bad_settings_stop_before_anything_is_tested(
    run: Run,
    segmentor: Model,
    tmp_path: Path,
    tested: list,
    capsys: pytest.CaptureFixture[str],
) -> None:
    work_dir = tmp_path / 'work'
    arguments = [segmentor.config, segmentor.checkpoint, '--work-dir', work_dir]
    for options, message in (
        (['--sizes', 64, 8], '--sizes 8: 8 x 12 pixels leave no token'),
        (['--sizes', 64, '--scaling', 'none', 'ntk'], "'ntk' changes the theta"),
        (['--sizes', 64, '--window', '2'], '--window 2: all blocks'),
    ):
        assert run(*arguments, *options) == 2
        assert message in capsys.readouterr().err
    assert not tested
    assert not work_dir.exists()


@pytest.mark.parametrize('name', ['eval_resolutions', 'choose_scaling'])
def test_a_scaling_is_refused_before_weights_are_read(
    segmentor: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    empty = tmp_path / 'empty.pth'
    empty.touch()
    given = [segmentor.config, empty, '--sizes', 64, '--scaling', 'ntk']
    given += ['--work-dir', tmp_path / 'work']
    assert command(name)([*map(str, given)]) == 2
    assert "'ntk' changes the theta" in capsys.readouterr().err
    assert not (tmp_path / 'work').exists()
