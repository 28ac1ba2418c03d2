"""The screen of a run: the bar on a terminal, lines in a log, and the figures of evaluations."""

from __future__ import annotations

import io
import logging
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from mmengine.dataset import DefaultSampler
from mmengine.evaluator import BaseMetric
from mmengine.logging import MessageHub, print_log
from mmengine.registry import METRICS
from torch.utils.data import DataLoader

from helpers.toy_runs import ToyData, log_of, toy_config
from rope_dense.engine.progress_hook import ProgressHook
from rope_dense.engine.runner import build_runner
from rope_dense.project.launch import run_test, run_training
from rope_dense.utils.errors import UsageError

BY_ITERATION = dict(type='LogProcessor', by_epoch=False)
TABLE = '\n+-------+\n| class |\n+-------+'


class Terminal(io.StringIO):
    """A stream that keeps what a terminal would get."""

    def isatty(self) -> bool:
        return True


@METRICS.register_module(force=True)
class Talks(BaseMetric):
    """Prints and logs, as pycocotools and mmdet do."""

    def process(self, data_batch: object, data_samples: object) -> None:
        self.results.append(0)

    def compute_metrics(self, results: list) -> dict[str, float]:
        print('creating index...')
        print_log('copypaste: 0.5', logger='current')
        print_log(TABLE, logger='current')
        return {
            'bbox_mAP': 0.5,
            'bbox_mAP_s': -1.0,
            'segm_mAP': 0.25,
            'cat_precision': 0.7,
        }


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Begin to write to a terminal; not in a fixture, after which pytest takes the streams."""
    shown = Terminal()
    monkeypatch.setattr(sys, 'stdout', shown)
    monkeypatch.setattr(sys, 'stderr', shown)
    return shown


def test_a_terminal_has_a_bar_and_a_line_for_each_evaluation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    screen = terminal(monkeypatch)
    runner = build_runner(
        toy_config(tmp_path, 14, (0.1, 0.3, 0.2, 0.1), log_processor=BY_ITERATION)
    )
    run_training(runner)
    frames = screen.getvalue().split('\r')
    assert any(
        f.startswith(
            '  7%|7         | epoch 1 of 4, iteration 1 of 14, 00:00 left, loss '
        )
        for f in frames
    )
    assert any('validation: 1 of 4, 00:00 left' in frame for frame in frames)
    assert 'Iter(' not in screen.getvalue() and 'Saving' not in screen.getvalue()
    lines = [line.rpartition('\r')[2] for line in screen.getvalue().split('\n')]
    lines = [line for line in lines if line and 'WARNING' not in line]
    assert lines.pop(0).endswith('figures: 8 images of ToyData; Given')
    assert lines == [
        'epoch 1: score 0.100  (best so far)',
        'epoch 2: score 0.300  (best so far)',
        'epoch 3: score 0.200',
        'iteration 14: score 0.100',
    ]
    log = log_of(runner)
    assert 'Iter(train) [14/14]' in log and 'Saving checkpoint at 4 iterations' in log
    assert (
        'score: 0.1' in log
        and 'epoch 1 of 4, iteration 1 of 14, 00:00 left, loss ' in log
    )


def test_a_log_has_lines_and_a_line_for_each_evaluation(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    runner = build_runner(toy_config(tmp_path, 6, log_processor=BY_ITERATION))
    run_training(runner)
    out, err = capsys.readouterr()
    assert 'epoch 1 of 2, iteration 1 of 6, 00:00 left, loss ' in out
    assert 'Iter(' not in out and 'Iter(train) [6/6]' in log_of(runner)
    assert '\nepoch 1: score 0.100  (best so far)\n' in out and 'score: 0.1' not in out
    assert 'score: 0.1' in log_of(runner) and '\r' not in out + err


@pytest.mark.parametrize('in_terminal', [False, True])
def test_evaluators_talk_to_the_log_file(
    in_terminal: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    screen = terminal(monkeypatch) if in_terminal else None
    cfg = toy_config(tmp_path, iterations=4, val_evaluator=[dict(type='Talks')])
    cfg.default_hooks.checkpoint.save_best = 'bbox_mAP'
    cfg.test_dataloader, cfg.test_cfg, cfg.test_evaluator = (
        cfg.val_dataloader,
        {},
        cfg.val_evaluator,
    )
    runner = build_runner(cfg)
    run_training(runner)
    shown = screen.getvalue() if screen else capsys.readouterr().out
    assert 'epoch 1: boxes  mAP 0.500\nepoch 1: masks  mAP 0.250' in shown
    log = log_of(runner)
    for text in ('creating index...', 'copypaste', '| class |'):
        assert text not in shown and text in log
    run_test(runner)
    shown = screen.getvalue() if screen else capsys.readouterr().out
    assert TABLE in shown and 'creating' not in shown and 'copypaste' not in shown
    assert 'Iter(test)' not in shown.partition(TABLE)[2]
    assert [line.split() for line in shown.splitlines()[-3:]] == [
        ['mAP', 'small'],
        ['boxes', '0.500', '-'],
        ['masks', '0.250'],
    ]


def test_an_error_removes_the_bar(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    screen = terminal(monkeypatch)
    cfg = toy_config(tmp_path, results=())
    with pytest.raises(StopIteration):
        run_training(build_runner(cfg))
    assert sys.stdout is screen
    cfg = toy_config(tmp_path / 'b', **{'model.refuses': 3})
    with pytest.raises(UsageError, match='not finite'):
        run_training(build_runner(cfg))
    assert 'iteration 1 of 12' in screen.getvalue()
    assert (
        screen.getvalue().endswith('\r')
        and not screen.getvalue().split('\r')[-2].strip()
    )


def runner_of() -> SimpleNamespace:
    hub = MessageHub.get_instance('test_progress')
    hub.update_scalar('train/loss', 2.5)
    logger = logging.getLogger('test_progress')
    logger.setLevel(logging.INFO)
    data = ToyData(8)
    loader = DataLoader(data, batch_size=2, sampler=DefaultSampler(data))
    evaluator = SimpleNamespace(evaluate=None, metrics=[])
    return SimpleNamespace(
        iter=0,
        rank=0,
        max_iters=40,
        message_hub=hub,
        logger=logger,
        train_dataloader=loader,
        val_dataloader=[None] * 8,
        val_loop=SimpleNamespace(evaluator=evaluator, dataloader=loader),
        cfg={},
    )


def lines_of(
    hook: ProgressHook, runner: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> list:
    with caplog.at_level(logging.INFO):
        hook.before_train(runner)
        for runner.iter in range(6):
            hook.after_train_iter(runner, runner.iter)
            time.sleep(0.06)
    return [record.getMessage() for record in caplog.records]


def test_slow_iterations_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    source, *lines = lines_of(ProgressHook(seconds=0.1), runner_of(), caplog)
    assert source == 'figures: 8 images of ToyData'
    assert [line.split(',')[1] for line in lines] == [
        ' iteration 1 of 40',
        ' iteration 3 of 40',
        ' iteration 5 of 40',
    ]
    assert lines[0].startswith('epoch 1 of 10, ') and lines[2].startswith(
        'epoch 2 of 10, '
    )
    assert re.fullmatch(r'.*, 00:0\d left, loss 2.5', lines[2])


def test_slow_validations_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    hook, runner = ProgressHook(seconds=0.1), runner_of()
    hook.logged_at = time.monotonic()
    with caplog.at_level(logging.INFO):
        hook.before_val_epoch(runner)
        for index in range(4):
            time.sleep(0.06)
            hook.after_val_iter(runner, index)
    messages = [record.getMessage() for record in caplog.records]
    assert [m.split(',')[0] for m in messages] == [
        'validation: 2 of 8',
        'validation: 4 of 8',
    ]
