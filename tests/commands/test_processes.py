"""The tools as processes: interrupted, distributed, and without OpenMMLab."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import torch

from helpers.tool_names import TOOLS


def run(command: Sequence[str], **kwargs: object) -> subprocess.CompletedProcess:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, **kwargs
    )


def test_tools_without_openmmlab_say_what_to_install() -> None:
    """An error of the import, which does not end the process by itself."""
    code = (
        'import runpy, sys\n'
        "sys.modules['mmcv'] = None\n"
        f'sys.path[0] = {str(TOOLS)!r}\n'
        "sys.argv = ['train.py', 'configs/dino_vitdet_rope_mixed.py']\n"
        "runpy.run_path('tools/train.py', run_name='__main__')"
    )
    result = run([sys.executable, '-W', 'ignore', '-c', code], cwd=TOOLS.parent)
    assert result.returncode == 1
    assert 'ImportError: rope_dense registers nothing without mmcv' in result.stderr
    assert 'make setup' in result.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize('number, code', [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_training_with_a_checkpoint_and_advice(
    number: signal.Signals, code: int, detector: str, tmp_path: Path
) -> None:
    command = [sys.executable, str(TOOLS / 'train.py'), detector, '--work-dir', 'work']
    command += [
        '--cfg-options',
        'train_cfg.max_iters=100000',
        'train_cfg.val_interval=100000',
    ]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background jobs ignore it, and what they start inherits that.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    saved = tmp_path / 'work' / 'last_checkpoint'
    lines = []
    for line in process.stdout:
        lines.append(line)
        if 'Saving checkpoint' in line and saved.exists():
            break
    process.send_signal(number)
    _, message = process.communicate(timeout=60)
    first = next(index for index, line in enumerate(lines) if 'iteration 1 of ' in line)
    assert any(
        line.startswith('schedule   100000 iterations') for line in lines[:first]
    )
    assert first < 90 and not any(
        'OneDL' in line or 'init by' in line for line in lines
    )
    assert process.returncode == code and 'Traceback' not in message
    iteration = saved.read_text().rpartition('_')[2].removesuffix('.pth')
    assert (
        f'stopped at iteration {iteration} ({number.name}); the last checkpoint'
        in message
    )
    assert f'the last checkpoint is {saved.read_text()}' in message
    assert 'the same command with --resume continues' in message


@pytest.mark.parametrize(
    'script, arguments',
    [
        ('dist_train', ['c']),
        ('dist_test', ['c', 'x']),
    ],
)
def test_scripts_say_how_to_use_them(script: str, arguments: list[str]) -> None:
    result = run(['bash', str(TOOLS / f'{script}.sh'), *arguments])
    assert result.returncode == 2
    assert 'usage: ' in result.stderr and 'GPUS' in result.stderr


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason='the GPU path needs as many GPUs')
def test_one_process_goes_on_where_sharded_ones_stopped(
    segmentor: str, tmp_path: Path, unused_port: str
) -> None:
    """With its optimizer, which it could not read in another order; two processes test it.

    UperNet has SyncBN, which PyTorch has for GPUs only.
    """
    path = f'{Path(sys.executable).parent}:{os.environ["PATH"]}'
    settings = dict(cwd=tmp_path, env=os.environ | dict(PATH=path, PORT=unused_port))
    train, test = (str(TOOLS / f'dist_{name}.sh') for name in ('train', 'test'))
    commands = {
        1: ['bash', train, segmentor, '2', '--fsdp'],
        2: [sys.executable, str(TOOLS / 'train.py'), segmentor, '--resume'],
    }
    for iteration, command in commands.items():
        options = [
            '--cfg-options',
            f'train_cfg.max_iters={iteration}',
            'param_scheduler=None',
        ]
        options += ['train_dataloader.batch_size=4'] * (
            iteration == 2
        )  # as two have together
        options += ['val_cfg=None', 'val_dataloader=None', 'val_evaluator=None']
        result = run([*command, '--work-dir', 'work', *options], **settings)
        assert result.returncode == 0, result.stderr
        contents = torch.load(
            tmp_path / 'work' / f'iter_{iteration}.pth', weights_only=False
        )
        steps = {
            float(state['step']) for state in contents['optimizer']['state'].values()
        }
        assert steps == {iteration}
    arguments = ['work/iter_2.pth', '2', '--work-dir', 'test', '--out', 'labels']
    result = run(['bash', test, segmentor, *arguments], **settings)
    assert result.returncode == 0, result.stderr
    (metrics,) = (tmp_path / 'test').glob('*/*.json')
    assert 'mIoU' in json.loads(metrics.read_text())
    assert len(list((tmp_path / 'labels').glob('*.png'))) == 2
