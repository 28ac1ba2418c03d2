"""`rope-dense benchmark`: the report, its files, and what cannot be measured."""

import csv
from pathlib import Path

import mmcv
import numpy as np
import pytest
import torch

from helpers.rows import column, file_names, read_json
from helpers.tool_names import Fails, Main
from rope_dense.backbones import RoPEViT
from rope_dense.measure.benchmark import measured_size
from rope_dense.project.load import load_config
from rope_dense_command import command

SHAPE = '64x96'
NO_TEST = '--cfg-options test_dataloader=None test_cfg=None test_evaluator=None'.split()


@pytest.fixture(scope='module')
def benchmark() -> Main:
    return command('benchmark')


@pytest.mark.parametrize(
    'kind, batch',
    [('detector', 1), pytest.param('segmentor', 2, marks=pytest.mark.slow)],
)
def test_report(
    request: pytest.FixtureRequest,
    benchmark: Main,
    tmp_path: Path,
    kind: str,
    batch: int,
) -> None:
    config = request.getfixturevalue(kind)
    arguments = f'--sizes {SHAPE} --rounds 1 --batch {batch} --work-dir {tmp_path}'
    assert benchmark([config, *arguments.split()]) == 0
    folder = tmp_path / 'benchmark'
    assert file_names(folder) == {'benchmark.json', 'benchmark.csv'}
    report = read_json(folder / 'benchmark.json')
    assert report['parameters'] > 1000
    assert report['config'] == config
    forward, training = report['rows']
    assert (forward['mode'], training['mode']) == ('forward', 'training')
    for row in report['rows']:
        assert (row['height'], row['width'], row['batch']) == (64, 96, batch)
        times = [row[f'{name}_ms'] for name in ('p20', 'median', 'p80', 'p90', 'p99')]
        assert times == sorted(times)
        assert row['multiply_adds'] > 1e6
        assert row['memory_mb'] > 0
        assert sum(row['share'].values()) == pytest.approx(1)
        for part in ('rotation', 'attention', 'linear'):
            assert 0 < row['share'][part] < 1
        has_windows = row['share']['windows'] > 0
        assert has_windows == (kind == 'detector')  # ViTDet's window blocks
    assert training['memory_mb'] > forward['memory_mb']
    with (folder / 'benchmark.csv').open(newline='') as stream:
        lines = list(csv.DictReader(stream))
    rotation = training['share']['rotation']
    assert float(lines[1]['share_rotation']) == pytest.approx(rotation)


def test_a_model_without_rotation_spends_no_time_on_it(
    benchmark: Main,
    segmentor: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Nor does PyTorch's profiler print; without a size, it is the test images'."""
    argv = [segmentor, '--rounds', '1', '--modes', 'forward']
    argv += ['--work-dir', str(tmp_path), '--cfg-options', 'model.backbone.rope=None']
    assert benchmark(argv) == 0
    (row,) = read_json(tmp_path / 'benchmark' / 'benchmark.json')['rows']
    assert row['share']['rotation'] == 0 == row['rotations']
    assert (row['height'], row['width']) == measured_size(load_config(segmentor))
    assert 'SyncActivityProfilerHandler' not in capfd.readouterr().err


def test_from_a_file_to_results(
    benchmark: Main,
    detector: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The picture is decoded and resized in each call, and the model sees images of that size."""
    files = []
    images = []
    decode = mmcv.imfrombytes
    forward = RoPEViT.forward

    def decoded(content: bytes, **settings: object) -> np.ndarray:
        image = decode(content, **settings)
        files.append(image.shape)
        return image

    def seen(model: RoPEViT, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        images.append(tuple(image.shape))
        return forward(model, image)

    monkeypatch.setattr(mmcv, 'imfrombytes', decoded)
    monkeypatch.setattr(RoPEViT, 'forward', seen)
    arguments = f'--sizes {SHAPE} --rounds 2 --batch 2 --work-dir {tmp_path}'
    modes = ['--modes', 'forward', 'end-to-end']
    assert benchmark([detector, *arguments.split(), *modes]) == 0
    rows = read_json(tmp_path / 'benchmark' / 'benchmark.json')['rows']
    assert column(rows, 'mode') == ['forward', 'end-to-end']
    calls = 2 + 1 + 1  # rounds, one to warm up and one under the profiler
    assert files == [(453, 679, 3)] * 2 * calls
    assert images[-calls:] == [(2, 3, 64, 96)] * calls
    assert rows[1]['p99_ms'] >= rows[1]['median_ms'] > 0


@pytest.mark.parametrize(
    'arguments, says',
    [
        (['--device', 'gpu'], ['(--device) gpu']),
        (['--sizes', '8x8'], ['8 x 8', 'less than one patch']),
        (
            ['--sizes', SHAPE, '--modes', 'training'],
            ['batch 1: Expected more than 1 value'],
        ),
        (['--sizes', SHAPE, '--modes', 'end-to-end', *NO_TEST], ['no test_dataloader']),
        (['--cfg-options', 'model.backbone.archs=tiny'], ["'archs'"]),
    ],
)
def test_errors(
    benchmark: Main,
    segmentor: str,
    fails: Fails,
    arguments: list[str],
    says: list[str],
) -> None:
    fails(benchmark, segmentor, *arguments, says=says)


@pytest.mark.parametrize(
    'tool, given, foreign',
    [
        ('benchmark', ['CONFIG', '--sizes', '64'], 'benchmark/benchmark.csv'),
        ('position_bias', ['CONFIG', 'WEIGHTS'], 'position_bias/position_bias.png'),
        ('choose_scaling', ['CONFIG', 'WEIGHTS', '--sizes', '96'], 'scaling/96.py'),
    ],
)
def test_files_of_the_users_stop_it_before_anything_is_measured(
    tool: str,
    given: list[str],
    foreign: str,
    detector: str,
    weights: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / foreign
    file.parent.mkdir()
    file.write_text('mine')
    files = dict(CONFIG=detector, WEIGHTS=weights)
    argv = [files.get(word, word) for word in given]
    assert command(tool)([*argv, '--work-dir', str(tmp_path)]) == 2
    assert f'{file} was not written by rope-dense' in capsys.readouterr().err
    assert file.read_text() == 'mine'
    assert [path for path in tmp_path.rglob('*') if path.is_file()] == [file]
