"""The tools as functions, and what they run on."""

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DefaultScope

from helpers.small_configs import make_data, small_config
from helpers.tool_names import Fails, Main
from rope_dense.project.model import random_model
from rope_dense_command import command


@pytest.fixture(scope='session')
def train() -> Main:
    return command('train')


@pytest.fixture(scope='session')
def test() -> Main:
    return command('test')


@pytest.fixture(scope='session')
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp('tools')


@pytest.fixture(scope='session')
def data(folder: Path) -> Path:
    return make_data(folder / 'data')


@pytest.fixture(scope='session')
def detector(folder: Path, data: Path) -> str:
    return str(small_config('dino_vitdet_rope_mixed', data, folder))


@pytest.fixture(scope='session')
def segmentor(folder: Path, data: Path) -> str:
    return str(small_config('upernet_vit_rope_mixed', data, folder))


@pytest.fixture(scope='session')
def weights(folder: Path, detector: str) -> str:
    """A checkpoint of the detector, without training state."""
    path = folder / 'weights.pth'
    torch.save(
        dict(state_dict=random_model(Config.fromfile(detector)).state_dict()), path
    )
    return str(path)


@pytest.fixture(autouse=True)
def own_scope() -> Iterator[None]:
    """Leave no default scope to other tests."""
    with DefaultScope.overwrite_default_scope('mmengine'):
        yield


@pytest.fixture
def fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Fails:
    """Run a tool that must stop with exit code 2, one message and nothing left behind."""

    def run(main: Main, *argv: str, says: Sequence[str]) -> str:
        work_dir = tmp_path / 'work'
        assert main([*argv, '--work-dir', str(work_dir)]) == 2
        message = capsys.readouterr().err
        assert message.count('error: ') == 1 and 'Traceback' not in message
        assert not work_dir.exists()
        for expected in says:
            assert expected in message
        return message

    return run


@pytest.fixture
def unused_port() -> str:
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return str(probe.getsockname()[1])
