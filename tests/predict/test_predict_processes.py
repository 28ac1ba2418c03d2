"""rope-dense predict by several processes: shares, journals, and one result, equal to the byte."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config

from helpers.tool_names import Main
from rope_dense.data.images.sources import ImageReader
from rope_dense.project.model import random_model
from rope_dense_command import command

NAMES = [f'{folder}/{name}.png' for folder in 'ab' for name in 'vwxyz']
MORE = ['--score', '0.01', '--write', 'coco', 'yolo', 'crops', '--tile-above', '0.01']


@pytest.fixture(scope='module')
def predict() -> Main:
    return command('predict')


@pytest.fixture(scope='module')
def pictures(folder: Path) -> Path:
    """Ten images, of which the third goes in tiles and the sixth cannot be read."""
    rng = np.random.default_rng(0)
    for number, name in enumerate(NAMES):
        path = folder / 'ten' / name
        path.parent.mkdir(parents=True, exist_ok=True)
        side = 128 if number == 2 else 64
        cv2.imwrite(str(path), rng.integers(0, 255, (side, side, 3), np.uint8))
    (folder / 'ten' / NAMES[5]).write_bytes(b'no picture')
    return folder / 'ten'


@pytest.fixture(scope='module')
def model(detector: str, folder: Path) -> list[str]:
    torch.manual_seed(0)
    path = folder / 'processes.pth'
    torch.save(
        dict(state_dict=random_model(Config.fromfile(detector)).state_dict()), path
    )
    return [detector, str(path)]


@pytest.fixture(scope='module')
def expected(
    predict: Main, model: list[str], pictures: Path, folder: Path
) -> dict[str, bytes]:
    """The files of one process."""
    out = folder / 'one'
    assert predict([*model, str(pictures), '--out', str(out), *MORE]) == 0
    assert [*files_in(out)][-1] == 'yolo/labels/b/z.txt'
    return files_in(out)


def files_in(folder: Path) -> dict[str, bytes]:
    """All files, by their paths, but for records."""
    paths = sorted(path for path in folder.rglob('*') if path.is_file())
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    return {
        name: content for name, content in found.items() if not name.startswith('.')
    }


def as_rank(monkeypatch: pytest.MonkeyPatch, rank: int, count: int) -> None:
    monkeypatch.setenv('RANK', str(rank))
    monkeypatch.setenv('WORLD_SIZE', str(count))


def test_a_job_array_and_one_that_merges(
    predict: Main,
    model: list[str],
    pictures: Path,
    expected: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The second of three is interrupted; two others go on, and one alone merges."""
    out, seen = tmp_path / 'out', list[str]()
    arguments = [*model, str(pictures), '--out', str(out), *MORE]
    read, most = ImageReader.read, 99

    def spied(reader: object, path: Path) -> np.ndarray:
        if len(seen) == most:
            raise KeyboardInterrupt
        seen.append(path.relative_to(pictures).as_posix())
        return read(reader, path)

    monkeypatch.setattr(ImageReader, 'read', spied)
    monkeypatch.setattr('rope_dense.predict.place.SECONDS', 0)
    for rank, count, most, code in ((0, 3, 99, 0), (1, 3, 6, 130), (1, 2, 99, 0)):  # noqa: B007
        as_rank(monkeypatch, rank, count)
        assert predict(arguments) == code
        assert not (out / 'predictions.json').exists()
    assert (
        'process 2 of 2 is done: when all are, the command alone merges'
        in capsys.readouterr().out
    )
    assert seen == [NAMES[i] for i in (0, 3, 6, 9, 1, 4, 5, 7)]
    seen.clear()
    monkeypatch.delenv('RANK')
    monkeypatch.delenv('WORLD_SIZE')
    assert predict(arguments) == 0
    assert '7 of 10 images were predicted before' in capsys.readouterr().out
    assert seen[:2] == [NAMES[5], NAMES[8]]  # the others are read for their crops
    assert files_in(out) == expected


@pytest.mark.parametrize(
    'rank, count, given, message',
    [
        ('2', '2', '.', 'RANK=2: give a number below WORLD_SIZE=2'),
        ('first', '2', '.', 'RANK=first'),
        (
            '0',
            '2',
            '-',
            'several processes predict images of a folder or a list, no video or -',
        ),
    ],
)
def test_what_cannot_be_shared(
    rank: str,
    count: str,
    given: str,
    message: str,
    predict: Main,
    model: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv('RANK', rank)
    monkeypatch.setenv('WORLD_SIZE', count)
    monkeypatch.chdir(tmp_path)
    assert predict([*model, given, '--out', 'out']) == 2
    assert message in capsys.readouterr().err and not (tmp_path / 'out').exists()


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason='the GPU path needs as many GPUs')
def test_the_first_of_two_processes_merges(
    model: list[str],
    pictures: Path,
    expected: dict[str, bytes],
    tmp_path: Path,
    unused_port: str,
) -> None:
    torchrun = [
        '-m',
        'torch.distributed.run',
        '--nproc_per_node=2',
        f'--master_port={unused_port}',
    ]
    arguments = [
        'predict',
        *model,
        str(pictures),
        '--out',
        str(tmp_path / 'out'),
        *MORE,
    ]
    result = subprocess.run(
        [sys.executable, *torchrun, '-m', 'rope_dense', *arguments],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout.count('not predicted: ') == 1
    assert result.stdout.count(' in 9 images: ') == 1
    assert files_in(tmp_path / 'out') == expected
