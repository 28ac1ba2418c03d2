"""Runs that end with a checkpoint when a scheduler or a person asks them to."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from threading import Thread, current_thread, main_thread
from typing import Any

import torch
from mmengine.dist import all_reduce, barrier
from mmengine.hooks import EMAHook, Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from torch.utils.data import DataLoader

from ..utils.process import end_with_parent
from .checkpoint_hook import AtomicCheckpointHook
from .train_loop import AnyRunner

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
SAVE = 1  # a request for a checkpoint alone, less than any of the signals
EVERY = 10  # batches of an evaluation between two agreements of several processes
HINT = b'\nstopping after this iteration, with a checkpoint; Ctrl-C %sstops at once\n'


class Stopped(KeyboardInterrupt):
    """A training that a signal has ended; ``code`` is the exit code: 130 after Ctrl-C, else 143."""

    def __init__(self, number: int, iteration: int) -> None:
        super().__init__(f'at iteration {iteration} ({signal.Signals(number).name})')
        self.code = 130 if number == signal.SIGINT else 143


@HOOKS.register_module()
class PreemptionHook(Hook):
    """Saves a checkpoint and ends the training after SIGTERM, SIGUSR1 or Ctrl-C.

    After each iteration, and each tenth batch of an evaluation, the processes agree by an
    all-reduce of one number, just after mmengine's log has waited for the loss on a GPU.
    Accumulated gradients are not in a checkpoint, so the optimizer steps first.

    Raises:
        Stopped: in all processes at the same iteration.
    """

    priority = 'LOWEST'  # behind checkpoints
    noted = 0  # the number of a signal

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Within this context, signals that are not ignored are noted, in the main thread alone."""
        numbers = SIGNALS if current_thread() is main_thread() else ()
        earlier = {}
        for number in numbers:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                earlier[number] = signal.signal(number, self.note)
        try:
            yield
        finally:
            for number, handler in earlier.items():
                signal.signal(number, handler)

    def note(self, number: int, frame: object) -> None:
        """Note a signal; a second one by Ctrl-C ends at once."""
        if number == signal.SIGINT and self.noted:
            raise KeyboardInterrupt
        again = b'again ' if number == signal.SIGINT else b''
        os.write(2, HINT % again)
        self.noted = number

    def before_train(self, runner: AnyRunner) -> None:
        self.obey(runner, runner.iter)

    after_val = before_train

    def after_train_iter(
        self, runner: Runner, batch_idx: int, *args: Any, **others: Any
    ) -> None:
        self.obey(runner, runner.iter + 1)

    def before_val_epoch(self, runner: AnyRunner) -> None:
        self.common = agree_on(len(runner.val_dataloader), 'min')

    def after_val_iter(
        self, runner: Runner, batch_idx: int, *args: Any, **others: Any
    ) -> None:
        agrees = runner.world_size == 1 or batch_idx % EVERY == 0
        if agrees and batch_idx < self.common:
            self.obey(runner, runner.iter, evaluates=True)

    def obey(self, runner: AnyRunner, iteration: int, evaluates: bool = False) -> None:
        """Save, and end the training, if a process has been asked to."""
        request = self.noted
        savers = []
        for hook in runner.hooks:
            if isinstance(hook, AtomicCheckpointHook):
                savers.append(hook)
                is_late = time.monotonic() - hook.written > 60 * hook.save_minutes
                if is_late and not evaluates:
                    request = request or SAVE
        request = agree_on(request, 'max')
        if not request or not runner.optim_wrapper.should_update():
            return
        for hook in runner.hooks if evaluates else ():
            if isinstance(hook, EMAHook):
                hook._swap_ema_parameters()  # the model has the average while it is evaluated
        for saver in savers:
            saver.save(runner, iteration)
        if request != SAVE:
            barrier()  # the first process may still be writing
            raise Stopped(request, iteration)


def agree_on(number: int, reduction: str) -> int:
    """The largest ('max') or smallest ('min') of the numbers of all processes."""
    value = torch.tensor(number)
    all_reduce(value, reduction)
    return int(value)


class QuietLoader(DataLoader):
    """A loader whose processes end by the SIGTERM of their parent, and by no other of ``SIGNALS``.

    Schedulers signal whole groups of processes. PyTorch and Python end loading processes by
    SIGTERM, and would wait for one that ignores it. The processes inherit what is blocked.
    """

    def __iter__(self) -> Any:
        earlier = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            return super().__iter__()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, earlier)


def start_worker(then: Callable[[int], None] | None, worker: int) -> None:
    """Begin a loading process of a ``QuietLoader``; `then` is the loader's own function."""
    end_with_parent()
    Thread(target=wait_for_parent, daemon=True).start()
    if then:
        then(worker)


def wait_for_parent() -> None:
    """End this process when its parent sends SIGTERM."""
    parent = parent_process()
    while parent:
        heard = signal.sigwaitinfo(SIGNALS)
        if (heard.si_signo, heard.si_pid) == (signal.SIGTERM, parent.pid):
            os._exit(0)
