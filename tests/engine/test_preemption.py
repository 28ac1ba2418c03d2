"""A run that is asked to end, and resumed, against one that was not: equal to the bit."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from functools import partial
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.runner import Runner

from helpers.small_configs import make_data
from helpers.toy_runs import LOADER, toy_config
from rope_dense import training as training
from rope_dense.engine.preemption import SIGNALS, PreemptionHook, Stopped
from rope_dense.engine.runner import ToolRunner
from rope_dense.project import launch

pytestmark = pytest.mark.usefixtures('surroundings')
forked = pytest.mark.skipif(
    torch.cuda.is_available(), reason='a forked process has no GPU'
)

RESULTS = (0.1, 0.3, 0.2)  # of the iterations 4, 8, 12
EMA = dict(type='EMAHook', momentum=0.25)
ACCUMULATED = {'optim_wrapper.accumulative_counts': 3}
SPARSE = {'default_hooks.checkpoint.interval': 12}
SHARDED = {'runner_type': 'FlexibleRunner', 'custom_hooks': []}


class SignalAt(Hook):
    """Sends signals to its own process at a point of an iteration.

    Its loading processes get them from another process, which is not their parent.
    """

    priority = 'VERY_HIGH'

    def __init__(self, point: str, iteration: int, signals: Sequence[int]) -> None:
        self.iteration, self.signals = iteration, signals
        setattr(self, point, self.send)

    def send(self, runner: Runner, *args: object, **others: object) -> None:
        if runner.iter == self.iteration:
            workers = [str(worker.pid) for worker in active_children()]
            for number in self.signals:
                if workers:
                    subprocess.run(['kill', f'-{number:d}', *workers], check=True)
                os.kill(os.getpid(), number)
            self.signals = ()


def config(folder: Path, **options: Any) -> Config:
    options = {'custom_hooks': [EMA], **options}
    cfg = toy_config(folder, 12, RESULTS, **options)
    cfg.default_hooks.checkpoint.max_keep_ckpts = 1
    return cfg


def train(cfg: Config, *hooks: Hook, launcher: str = 'none') -> None:
    runner = launch.launch_runner(cfg, launcher, trains=True)
    for hook in hooks:
        runner.register_hook(hook)
    launch.run_training(runner)


def resume(cfg: Config, start: Path, launcher: str = 'none') -> None:
    """Continue; the results of complete evaluations are not asked for again."""
    done = load(start)['message_hub']['runtime_info'].get('evaluated', 0) // 4
    cfg.val_evaluator[0].results = RESULTS[done:]
    cfg.resume, cfg.load_from = True, str(start)
    train(cfg, launcher=launcher)


def load(path: Path) -> dict[str, Any]:
    return torch.load(path, weights_only=False)


def assert_same_end(folder: Path, expected: Path) -> None:
    for name in ('iter_12.pth', 'best_score_iter_8.pth'):
        ours, theirs = load(folder / name), load(expected / name)
        assert ours.keys() == theirs.keys()
        for part in theirs.keys() & {'state_dict', 'ema_state_dict'}:
            assert ours[part].keys() == theirs[part].keys()
            for key, value in theirs[part].items():
                assert torch.equal(ours[part][key], value), (name, key)
        for part in theirs.keys() & {'optimizer', 'param_schedulers'}:
            assert str(ours[part]) == str(theirs[part])
    record = 'best_checkpoint.json'
    assert (folder / record).read_text() == (expected / record).read_text()


@pytest.mark.parametrize(
    'point, iteration, options, saved',
    [
        ('after_train_iter', 5, {}, 'iter_6'),
        (
            'after_train_iter',
            7,
            {},
            'iter_8',
        ),  # before an evaluation, which is repeated
        ('after_val_iter', 8, {}, 'iter_8'),
        (
            'after_val_iter',
            8,
            SPARSE,
            'iter_8',
        ),  # is saved while the model has the average
        ('after_val_epoch', 8, SPARSE, 'iter_8'),
        ('after_val_iter', 12, {}, 'iter_12'),
        (
            'after_train_iter',
            3,
            ACCUMULATED,
            'iter_6',
        ),  # gradients are not in a checkpoint
        ('after_val_iter', 8, ACCUMULATED, 'iter_9'),
        ('after_val_iter', 8, SHARDED, 'iter_8'),
    ],
)
def test_a_run_that_is_asked_to_end_is_continued_to_the_bit(
    point: str,
    iteration: int,
    options: dict[str, Any],
    saved: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    handlers = [signal.getsignal(number) for number in SIGNALS]
    folder = tmp_path / 'run'
    with pytest.raises(Stopped) as stopped:
        train(config(folder, **options), SignalAt(point, iteration, [signal.SIGTERM]))
    assert stopped.value.code == 143
    checkpoint = folder / f'{saved}.pth'
    number = saved.removeprefix('iter_')
    assert capsys.readouterr().err == (
        f'\nstopped at iteration {number} (SIGTERM); the last checkpoint is {checkpoint}: '
        'the same command with --resume continues\n'
    )
    assert [path.name for path in folder.glob('iter_*')] == [checkpoint.name]
    assert load(checkpoint)['meta']['iter'] == int(number)
    assert [signal.getsignal(number) for number in SIGNALS] == handlers

    resume(config(folder, **options), checkpoint)
    train(config(tmp_path / 'whole', **options))
    assert_same_end(folder, tmp_path / 'whole')


@pytest.mark.parametrize('point', ['before_train', 'before_train_iter'])
def test_signals_before_the_first_iteration_end_the_run_too(
    point: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Stopped) as stopped:
        train(config(tmp_path), SignalAt(point, 0, [signal.SIGUSR1]))
    assert stopped.value.code == 143
    says = {
        'before_train': 'yet: the same command starts again',
        'before_train_iter': '/iter_1.pth',
    }
    assert says[point] in capsys.readouterr().err


@pytest.mark.parametrize(
    'signals, kind, left',
    [
        ([signal.SIGINT], Stopped, ['iter_6.pth']),
        ([signal.SIGINT] * 2, KeyboardInterrupt, ['iter_4.pth']),
        ([signal.SIGTERM, signal.SIGINT], KeyboardInterrupt, ['iter_4.pth']),
    ],
)
def test_ctrl_c_once_and_twice(
    signals: list[int],
    kind: type[BaseException],
    left: list[str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    earlier = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # not of a background job
    try:
        with pytest.raises(KeyboardInterrupt) as stopped:
            train(config(tmp_path), SignalAt('after_train_iter', 5, signals))
    finally:
        signal.signal(signal.SIGINT, earlier)
    assert type(stopped.value) is kind and getattr(stopped.value, 'code', 130) == 130
    assert [path.name for path in tmp_path.glob('iter_*')] == left
    said = capfd.readouterr().err
    assert said.count('Ctrl-C again stops at once') == (signals[0] == signal.SIGINT)

    assert f'the last checkpoint is {tmp_path / left[0]}: the same command' in said


def test_a_loop_by_epochs_names_the_last_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It cannot go on within an epoch, of four iterations here."""
    cfg = config(tmp_path)
    cfg.train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=3)
    cfg.default_hooks.checkpoint.update(by_epoch=True, interval=1)
    with pytest.raises(Stopped):
        train(cfg, SignalAt('after_train_iter', 5, [signal.SIGTERM]))
    assert [path.name for path in tmp_path.glob('[ie]*.pth')] == ['epoch_1.pth']
    assert (
        f'(SIGTERM); the last checkpoint is {tmp_path}/epoch_1.pth'
        in capsys.readouterr().err
    )


def test_signals_that_are_ignored_stay_so(tmp_path: Path) -> None:
    """A shell's background jobs ignore Ctrl-C."""
    earlier = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        train(config(tmp_path), SignalAt('after_train_iter', 5, [signal.SIGINT]))
    finally:
        signal.signal(signal.SIGINT, earlier)


@pytest.mark.parametrize(
    'point, iteration', [('after_train_iter', 6), ('after_val_iter', 8)]
)
def test_loading_processes_stay_until_the_end(
    point: str, iteration: int, tmp_path: Path
) -> None:
    """A scheduler signals them, too; PyTorch ends them by SIGTERM and the training by an error."""
    loaders: dict[str, Any] = {
        f'{name}_dataloader.num_workers': 2 for name in ('train', 'val')
    }
    folder = tmp_path / 'run'
    hook = SignalAt(point, iteration, SIGNALS[:2])
    with pytest.raises(
        Stopped
    ):  # at iteration 9, after batches that were not loaded yet
        train(config(folder, **loaders, **ACCUMULATED), hook, Pause())
    resume(config(folder, **loaders, **ACCUMULATED), folder / 'iter_9.pth')
    train(config(tmp_path / 'whole', **ACCUMULATED))
    assert_same_end(folder, tmp_path / 'whole')


class Pause(Hook):
    """Gives signals time to arrive before each batch of an evaluation."""

    def before_val_iter(self, *args: object, **others: object) -> None:
        time.sleep(0.05)


def keep_loading() -> None:
    """Leave a process while its loader still has workers, as after an error."""
    loader = dict(LOADER, dataset=dict(type='ToyData', length=8), num_workers=1)
    loader.update(persistent_workers=True)
    iterators.append(iter(ToolRunner.build_dataloader(loader)))
    next(iterators[0])


iterators: list[Any] = []


@forked
def test_a_process_does_not_wait_for_its_loading_processes() -> None:
    """Python ends them by SIGTERM, and waits."""
    process = get_context('fork').Process(target=keep_loading)
    process.start()
    process.join(20)
    code = process.exitcode
    process.kill()
    assert code == 0


# Evaluations of 11 batches in one process and 10 in the other.
UNEVEN = {
    'images': 21,
    'val_dataloader.batch_size': 1,
    'val_dataloader.sampler.round_up': False,
}


def train_one(
    rank: int, port: int, folder: Path, hook: Hook | None, start: Path | None
) -> None:
    """One of two processes; only the second gets signals."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE='2')
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port))
    try:
        if start:
            resume(config(folder, **UNEVEN), start, launcher='pytorch')
        else:
            train(
                config(folder, **UNEVEN),
                *([hook] if hook and rank else []),
                launcher='pytorch',
            )
    except Stopped as stopped:
        torch.distributed.destroy_process_group()
        os._exit(stopped.code)
    torch.distributed.destroy_process_group()


def train_two(
    folder: Path, hook: Hook | None = None, start: Path | None = None
) -> list[int]:
    """Train in two processes; returns their exit codes."""
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        port = probe.getsockname()[1]
    run = partial(train_one, port=port, folder=folder, hook=hook, start=start)
    processes = [
        get_context('fork').Process(target=run, args=(rank,)) for rank in (0, 1)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        process.kill()
    return [process.exitcode for process in processes]


@forked
@pytest.mark.parametrize(
    'point, iteration, saved',
    [('after_train_iter', 5, 'iter_6'), ('after_val_iter', 8, 'iter_8')],
)
def test_two_processes_end_and_go_on_together(
    point: str, iteration: int, saved: str, tmp_path: Path
) -> None:
    folder = tmp_path / 'run'
    hook = SignalAt(point, iteration, [signal.SIGTERM])
    assert train_two(folder, hook) == [143, 143]
    assert [path.name for path in folder.glob('iter_*')] == [f'{saved}.pth']
    assert train_two(folder, start=folder / f'{saved}.pth') == [0, 0]
    assert train_two(tmp_path / 'whole') == [0, 0]
    assert_same_end(folder, tmp_path / 'whole')


def test_minutes_without_a_checkpoint_make_one(tmp_path: Path) -> None:
    """Each iteration is longer than the time given; the last of them is resumed to the bit."""
    often = {'default_hooks.checkpoint.save_minutes': 1e-9}
    seen: list[str] = []

    class List(Hook):
        priority = 'LOWEST'

        def before_train_iter(self, *args: object, **others: object) -> None:
            seen.append(','.join(path.name for path in folder.glob('iter_*')))

    folder = tmp_path / 'run'
    with pytest.raises(Stopped):
        train(
            config(folder, **often),
            List(),
            SignalAt('after_train_iter', 6, [signal.SIGTERM]),
        )
    assert seen == ['', *[f'iter_{step}.pth' for step in range(1, 7)]]
    resume(config(folder, **often), folder / 'iter_7.pth')
    train(config(tmp_path / 'whole', **{'default_hooks.checkpoint.save_minutes': 30}))
    assert_same_end(folder, tmp_path / 'whole')


def train_realtime(data: Path, folder: Path, resume: str | None = None) -> None:
    """Three epochs of six images with mosaic, MixUp, a moving average and loading processes."""
    own = dict(data_root=str(data), backbone='tiny', weights=None, size=64, ema=True)
    own.update(epochs=3, batch_size=2, val_epochs=2, report=False)
    options = {
        'train_dataloader.num_workers': 1,
        'train_dataloader.persistent_workers': False,
    }
    training.train(
        'realtime', own=own, cfg_options=options, work_dir=str(folder), resume=resume
    )


@pytest.mark.slow
def test_mosaics_are_continued_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, folder, whole = (
        make_data(tmp_path / 'data') / 'coco',
        tmp_path / 'run',
        tmp_path / 'whole',
    )
    with monkeypatch.context() as patch:
        send = SignalAt('', 1, [signal.SIGTERM]).send
        patch.setattr(
            PreemptionHook, 'before_train_iter', lambda _, *args, **k: send(*args, **k)
        )
        with pytest.raises(Stopped, match='at iteration 2 '):
            train_realtime(data, folder)
    train_realtime(data, folder, resume='auto')
    train_realtime(data, whole)
    ends = [load(sorted(each.glob('iter_*.pth'))[-1]) for each in (folder, whole)]
    assert 'MosaicCocoDataset' in ends[0]['meta']['cfg']
    for part in ('state_dict', 'ema_state_dict'):
        for key, value in ends[1][part].items():
            assert torch.equal(ends[0][part][key], value), key
    assert str(ends[0]['optimizer']) == str(ends[1]['optimizer'])
