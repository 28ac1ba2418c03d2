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
        self.begin(0)
        self.test_started = self.shown

    def begin(self, iteration: int) -> None:
        """Start to count at an iteration."""
        self.started = self.shown = time.monotonic()
        self.first = self.validated = iteration
        self.validation_time = 0.0

    def before_train(self, runner: Runner) -> None:
        self.begin(runner.iter)

    def before_val_epoch(self, runner: Runner) -> None:
        self.test_started = self.shown = time.monotonic()

    before_test_epoch = before_val_epoch

    def after_val_epoch(self, runner: Runner, metrics: object = None) -> None:
        self.validation_time += time.monotonic() - self.test_started
        self.validated = runner.iter

    def after_train_iter(self, runner: Runner, batch_idx: int, *args: Any, **others: Any) -> None:
        done = runner.iter + 1
        if done % logger_interval(runner) == 0:
            self.shown = time.monotonic()
        loss = runner.message_hub.log_scalars.get('train/loss')
        more = '' if loss is None else f', loss {loss.current():.4g}'
        left = self.training_left(done, runner.max_iters)
        self.show(
            runner, f'training: {done} of {runner.max_iters}{more}', left, done == self.first + 1
        )

    def training_left(self, done: int, total: int) -> float:
        """Seconds for the other iterations, and for validations as often as until now."""
        training = time.monotonic() - self.started - self.validation_time
        left = training / max(1, done - self.first) * (total - done)
        validation = self.validation_time / max(1, self.validated - self.first)
        return left + validation * (total - self.validated)

    def after_val_iter(self, runner: Runner, batch_idx: int, *args: Any, **others: Any) -> None:
        self.tested(runner, 'validation', batch_idx + 1, len(runner.val_dataloader))

    def after_test_iter(self, runner: Runner, batch_idx: int, *args: Any, **others: Any) -> None:
        self.tested(runner, 'test', batch_idx + 1, len(runner.test_dataloader))

    def tested(self, runner: Runner, name: str, done: int, total: int) -> None:
        """Show the progress of a test loop."""
        if done % logger_interval(runner) == 0:
            self.shown = time.monotonic()
        left = (time.monotonic() - self.test_started) / done * (total - done)
        self.show(runner, f'{name}: {done} of {total}', left, False)

    def show(self, runner: Runner, text: str, left: float, at_once: bool) -> None:
        """Log a line, at once or if the last one is old enough."""
        now = time.monotonic()
        if at_once or now - self.shown >= self.seconds:
            self.shown = now
            runner.logger.info(f'{text}, about {left:.0f} s left')


def logger_interval(runner: Runner) -> int:
    """Iterations between two lines of mmengine's logger."""
    loggers = [hook for hook in runner.hooks if type(hook).__name__ == 'LoggerHook']
    return loggers[0].interval if loggers else 10**9
