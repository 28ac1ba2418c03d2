"""Lines of progress between those of mmengine's logger."""

from __future__ import annotations

import logging
import time
from types import SimpleNamespace

import pytest
from mmengine.hooks import LoggerHook
from mmengine.logging import MessageHub

from rope_dense.engine.progress_hook import ProgressHook


def runner_of(interval: int) -> SimpleNamespace:
    hub = MessageHub.get_instance('test_progress')
    hub.update_scalar('train/loss', 2.5)
    logger = logging.getLogger('test_progress')
    logger.setLevel(logging.INFO)
    return SimpleNamespace(
        iter=0,
        max_iters=40,
        hooks=[LoggerHook(interval=interval)],
        message_hub=hub,
        logger=logger,
        val_dataloader=[None] * 8,
    )


def lines_of(hook: ProgressHook, runner: SimpleNamespace, caplog: pytest.LogCaptureFixture) -> list:
    with caplog.at_level(logging.INFO):
        hook.before_train(runner)
        for runner.iter in range(6):
            hook.after_train_iter(runner, runner.iter)
            time.sleep(0.06)
    return [record.getMessage() for record in caplog.records]


def test_slow_iterations_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    lines = lines_of(ProgressHook(seconds=0.1), runner_of(50), caplog)
    assert [line.split(',')[0] for line in lines] == [
        'training: 1 of 40',
        'training: 3 of 40',
        'training: 5 of 40',
    ]
    assert ', loss 2.5, about ' in lines[0] and lines[0].endswith(' s left')


def test_lines_of_the_logger_count(caplog: pytest.LogCaptureFixture) -> None:
    assert len(lines_of(ProgressHook(seconds=0.1), runner_of(1), caplog)) == 1  # the first
    caplog.clear()
    assert len(lines_of(ProgressHook(), runner_of(50), caplog)) == 1


def test_slow_validations_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    hook, runner = ProgressHook(seconds=0.1), runner_of(50)
    with caplog.at_level(logging.INFO):
        hook.before_val_epoch(runner)
        for index in range(4):
            time.sleep(0.06)
            hook.after_val_iter(runner, index)
    messages = [record.getMessage() for record in caplog.records]
    assert [m.split(',')[0] for m in messages] == ['validation: 2 of 8', 'validation: 4 of 8']
