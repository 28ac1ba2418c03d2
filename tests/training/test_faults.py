"""Processes that are lost: loading ones, other ranks, and ranks that never come. One line each."""

import argparse
import json
import logging
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from mmengine.registry import DATASETS
from torch import Tensor, distributed
from torch.utils.data._utils import signal_handling

from helpers.toy_runs import ToyData, toy_config
from rope_dense.commands import run as commands
from rope_dense.data.generated import ShapesSettings, write_shapes
from rope_dense.project import launch
from rope_dense.utils.errors import UsageError
from rope_dense.utils.progress import show_elapsed

pytestmark = pytest.mark.usefixtures('surroundings')

GLOO = '[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [::1]'
TINY = [
    *('own.backbone=tiny', 'own.weights=None', 'own.size=64', 'own.batch_size=2'),
    'default_hooks.logger.interval=1',
]


@DATASETS.register_module(force=True)
class MortalData(ToyData):
    """The process that loads an image is killed, as the kernel does for lack of memory."""

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        if index == self.length - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


@pytest.mark.parametrize('loop', ['train', 'val', 'test'])
def test_a_loading_process_that_is_killed(
    loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K4: PyTorch raises wherever this process is, for each of the processes."""
    monkeypatch.setattr(
        signal_handling, '_SIGCHLD_handler_set', False
    )  # as of a new process
    dataset = dict(type='MortalData', length=30)
    loader = {f'{loop}_dataloader': dict(dataset=dataset, num_workers=1)}
    cfg = toy_config(tmp_path, 20)
    if loop == 'test':
        given = cfg.val_dataloader, cfg.val_cfg, cfg.val_evaluator
        cfg.test_dataloader, cfg.test_cfg, cfg.test_evaluator = given
    cfg.merge_from_dict(loader)
    runner = launch.launch_runner(cfg, 'none')
    start = launch.run_test if loop == 'test' else launch.run_training
    with pytest.raises(UsageError) as caught:
        start(runner)
    line = str(caught.value)
    assert re.match(r'a loading process was ended \(DataLoader worker \(pid', line)
    assert 'probably for lack of memory: ask for more, or set lower ' in line
    assert f'{loop}_dataloader.num_workers=1' in line and '\n' not in line
    assert caught.value.__cause__ is None
    assert bool(re.search(r'; --resume continues from .*iter_\d+.pth$', line)) == (
        loop != 'test'
    )


@pytest.mark.parametrize(
    'error',
    [
        RuntimeError(f'{GLOO}. This is typically'),
        distributed.DistBackendError('NCCL 553'),
    ],
)
def test_another_rank_that_ended_is_said(error: Exception, tmp_path: Path) -> None:
    """The traceback of a collective would hide the line of the rank that failed."""
    runner = launch.launch_runner(toy_config(tmp_path), 'none')
    expected = r'^another process of this run has ended, [^.]* say why \([^.]*(.cc:)?553[^.]*\)$'
    with (
        pytest.raises(UsageError, match=expected),
        launch.usage_errors_of_run(runner, 'train'),
    ):
        try:
            raise error
        except RuntimeError:
            raise ValueError('from a hook')  # noqa: B904


def test_logs_fail_in_silence_while_a_runner_works(tmp_path: Path) -> None:
    """On a full disk; the programs that call it have their own logs."""
    runner = launch.launch_runner(toy_config(tmp_path), 'none')
    assert logging.raiseExceptions
    with launch.usage_errors_of_run(runner, 'train'):
        assert not logging.raiseExceptions
    assert logging.raiseExceptions


def test_processes_that_never_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unused_port: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A typo of --nnodes, a node that is down: half an hour without a word."""
    place = dict(RANK='0', LOCAL_RANK='0', WORLD_SIZE='2', MASTER_ADDR='127.0.0.1')
    for name, value in dict(place, MASTER_PORT=unused_port).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(launch, 'show_elapsed', partial(show_elapsed, seconds=0.3))
    monkeypatch.setattr('torch.cuda.is_available', lambda: False)
    cfg = toy_config(tmp_path)
    cfg.env_cfg.dist_cfg.timeout = 1
    with pytest.raises(UsageError, match=r'--launcher pytorch: .*1/2 clients joined'):
        launch.launch_runner(cfg, 'pytorch')
    line = f'waiting for 2 processes at 127.0.0.1:{unused_port}, at most 1 s: '
    assert capsys.readouterr().err.startswith(line)
    assert launch.LIMIT == 600 and not distributed.is_initialized()


def test_an_error_of_one_process_alone_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A GPU that is not there: its first process is well, and waits."""
    slept: list[float] = []
    monkeypatch.setattr('time.sleep', slept.append)
    monkeypatch.setenv('LOCAL_RANK', '1')

    def fail(args: object) -> None:
        raise UsageError('invalid device ordinal')

    assert commands.run(fail, argparse.Namespace(debug=False)) == 2
    assert slept == [3] and 'error: invalid device ordinal' in capsys.readouterr().err


@pytest.fixture(scope='module')
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """15 and 3 images; in every other one of the training there is no object."""
    folder = tmp_path_factory.mktemp('faults')
    write_shapes(
        folder, ShapesSettings(train=15, val=3, size=(64, 64), layouts=('coco',))
    )
    file = folder / 'coco' / 'annotations' / 'instances_train2017.json'
    content = json.loads(file.read_text())
    content['annotations'] = [x for x in content['annotations'] if x['image_id'] % 2]
    file.write_text(json.dumps(content))
    return folder / 'coco'


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason='the GPU path needs as many GPUs')
def test_a_real_time_detector_trains_in_two_processes(
    shapes: Path, tmp_path: Path, unused_port: str
) -> None:
    """K6; with a rank whose images have no object, and an odd number of images."""
    torchrun = [
        '-m',
        'torch.distributed.run',
        '--nproc_per_node=2',
        f'--master_port={unused_port}',
    ]
    options = [f'own.data_root={shapes}', 'own.epochs=2', 'own.val_epochs=2', *TINY]
    arguments = [
        'realtime',
        '--launcher',
        'pytorch',
        '--work-dir',
        'work',
        '--cfg-options',
    ]
    result = subprocess.run(
        [sys.executable, *torchrun, '-m', 'rope_dense_command', 'train', *arguments, *options],
        cwd=tmp_path, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert 'coco/bbox_mAP' in result.stdout and 'no report' not in result.stdout
    report = json.loads((tmp_path / 'work' / 'report' / 'report.json').read_text())
    assert {item['image'] for item in report['worst']} == {
        0,
        1,
        2,
    }  # not one rank's alone
    assert (tmp_path / 'work' / 'iter_8.pth').exists()


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason='the GPU path needs as many GPUs')
def test_a_rank_that_is_killed_ends_the_other(
    shapes: Path, tmp_path: Path, unused_port: str
) -> None:
    """Without a launcher that would end it."""
    options = [f'own.data_root={shapes}', 'own.epochs=99', 'own.val_epochs=99', *TINY]
    arguments = [
        'realtime',
        '--launcher',
        'pytorch',
        '--work-dir',
        'work',
        '--cfg-options',
    ]
    place = dict(WORLD_SIZE='2', MASTER_ADDR='127.0.0.1', MASTER_PORT=unused_port)
    ranks = [
        subprocess.Popen(
            [sys.executable, '-m', 'rope_dense_command', 'train', *arguments, *options],
            cwd=tmp_path, env=os.environ | place | dict(RANK=rank, LOCAL_RANK=rank),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in ('0', '1')
    ]  # fmt: skip
    assert ranks[0].stdout is not None
    assert any(' iteration 1 of ' in line for line in ranks[0].stdout)
    ranks[1].kill()
    rest, _ = ranks[0].communicate(timeout=60)
    assert ranks[0].returncode == 2 and 'Traceback' not in rest
    assert 'error: another process of this run has ended, or hangs' in rest
    ranks[1].communicate(timeout=60)
