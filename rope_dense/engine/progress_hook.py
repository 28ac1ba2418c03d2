"""A line of progress where mmengine's logger is silent for long."""

from __future__ import annotations

import time
from typing import Any

from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner

SECONDS = 10.0


@HOOKS.register_module()
class ProgressHook(Hook):
    """Logs the iteration, the loss and the time left after the first iteration and each 10 s.

    mmengine's ``LoggerHook`` counts iterations, which take from milliseconds to a minute. A line
    of it counts as progress. The files that it writes are not changed.
    """

    priority = 'VERY_LOW'  # behind the logger

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self.begin(-1)

    def begin(self, first: int) -> None:
        """Start to count at an iteration."""
        self.started = self.shown = time.monotonic()
        self.first = first

    def before_train(self, runner: Runner) -> None:
        self.begin(runner.iter)

    def before_val_epoch(self, runner: Runner) -> None:
        self.begin(0)

    before_test_epoch = before_val_epoch

    def after_train_iter(self, runner: Runner, batch_idx: int, *args: Any, **others: Any) -> None:
        done = runner.iter + 1
        if done % logger_interval(runner) == 0:
            self.shown = time.monotonic()
        loss = runner.message_hub.log_scalars.get('train/loss')
        more = '' if loss is None else f', loss {loss.current():.4g}'
        self.show(runner, 'training', done, runner.max_iters, more, done == self.first + 1)

    def after_val_iter(self, runner: Runner, batch_idx: int, *args: Any, **others: Any) -> None:
        self.tested(runner, 'validation', batch_idx, len(runner.val_dataloader))

    def after_test_iter(self, runner: Runner, batch_idx: int, *args: Any, **others: Any) -> None:
        self.tested(runner, 'test', batch_idx, len(runner.test_dataloader))

    def tested(self, runner: Runner, name: str, index: int, total: int) -> None:
        """Show the progress of a test loop."""
        if (index + 1) % logger_interval(runner) == 0:
            self.shown = time.monotonic()
        self.show(runner, name, index + 1, total, '', False)

    def show(
        self, runner: Runner, name: str, done: int, total: int, more: str, at_once: bool
    ) -> None:
        """Log a line, at once or if the last one is old enough."""
        now = time.monotonic()
        if not at_once and now - self.shown < self.seconds:
            return
        self.shown = now
        left = (now - self.started) / max(1, done - self.first) * (total - done)
        runner.logger.info(f'{name}: {done} of {total}{more}, about {left:.0f} s left')


def logger_interval(runner: Runner) -> int:
    """Iterations between two lines of mmengine's logger."""
    loggers = [hook for hook in runner.hooks if type(hook).__name__ == 'LoggerHook']
    return loggers[0].interval if loggers else 10**9
