"""Build and run mmengine's Runner, with or without a GPU; and count the processes of a command."""

import contextlib
import gc
import io
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path

import torch
from mmengine.config import Config, ConfigDict
from mmengine.evaluator import BaseMetric
from mmengine.runner import Runner
from torch import distributed
from torch.utils.data._utils import signal_handling

from ..engine import runner as runners
from ..engine.checkpoint_hook import model_of
from ..engine.divergence import RunError, divergence_message
from ..engine.preemption import PreemptionHook, Stopped
from ..engine.progress_hook import ProgressHook
from ..utils.config_parts import nodes
from ..utils.disk import is_interrupt
from ..utils.errors import UsageError
from ..utils.progress import show_elapsed
from .building import NAMED, building
from .misfit import misfit_text
from .run import Run
from .weights import patch_mmengine_reader

LIMIT = 600  # seconds that a process waits for another
LONGEST = 30 * 24 * 3600  # likewise for all that share images
RUN_NUMBERS = count()
LOST_WORKER = 'DataLoader worker (pid'  # in PyTorch's error


def launch_runner(cfg: Config, launcher: str, trains: bool = False) -> Runner:
    """Build the config's Runner, distributed unless the launcher is 'none'; or UsageError.

    If it trains, the config is written to the work folder.
    """
    cfg.launcher = launcher
    if not trains:  # mmengine knows runs by this name and the second of their start
        cfg.experiment_name = f'run_{next(RUN_NUMBERS)}'
    patch_mmengine_reader()
    with building(f'Runner, --launcher {launcher}'), silent_log_errors():
        if launcher == 'pytorch' and not distributed.is_initialized():
            join_group((cfg.get('env_cfg') or {}).get('dist_cfg') or {})
        if launcher == 'pytorch' and not torch.cuda.is_available():
            # Each process has batch norms of its own: PyTorch synchronises them on GPUs only.
            cfg.sync_bn = None
            for _, node in nodes(cfg.model):
                if node.get('type') == 'SyncBN':
                    node.type = 'BN'
            wrapper = cfg.get('model_wrapper_cfg') or dict(
                type='MMDistributedDataParallel',
                broadcast_buffers=False,
                find_unused_parameters=cfg.get('find_unused_parameters', False),
            )
            cfg.model_wrapper_cfg = ConfigDict(wrapper, device_ids=None)
        return runners.build_runner(cfg, trains)


@contextlib.contextmanager
def silent_log_errors() -> Iterator[None]:
    """Within this context, a log on a full disk prints no traceback; what is written next fails."""
    usual = logging.raiseExceptions
    logging.raiseExceptions = False
    try:
        yield
    finally:
        logging.raiseExceptions = usual


def join_group(settings: dict) -> None:
    """Connect the processes of torchrun by `env_cfg.dist_cfg`; a line says if that takes long."""
    rank = os.environ['LOCAL_RANK']
    size = os.environ.get('WORLD_SIZE')
    seconds = settings.get('timeout', LIMIT)
    backend = 'gloo'
    if torch.cuda.is_available():
        torch.cuda.set_device(int(rank))
        backend = settings.get('backend', 'nccl')
    host = os.environ.get('MASTER_ADDR')
    port = os.environ.get('MASTER_PORT')
    step = f'waiting for {size} processes at {host}:{port}, at most {seconds} s'
    with show_elapsed(step) if rank == '0' else contextlib.nullcontext():
        distributed.init_process_group(backend, timeout=timedelta(seconds=seconds))


def leave_group() -> None:
    """End the process group of a distributed run: what follows is of one process alone."""
    if distributed.is_initialized():
        gc.collect()  # cycles hold the group, and gloo's threads would abort at exit
        distributed.destroy_process_group()


def run_test(runner: Runner, metrics: Sequence[BaseMetric] = ()) -> None:
    """Test, also with metrics that are not the config's; errors as in ``run_training``."""
    build_loop(runner, 'test')
    # Before mmdet's, which change what they are given.
    runner.test_loop.evaluator.metrics[:0] = metrics
    with usage_errors_of_run(runner, 'test'):
        runner.test()


def run_training(runner: Runner) -> None:
    """Train; after Ctrl-C or a signal of ``SIGNALS`` print how to continue.

    Raises:
        UsageError: a part cannot be built, the model refuses an image, the training diverges, or
            the run of a checkpoint cannot be continued with this config.
        CheckpointError, LoadError: weights do not fit, or weights or an image cannot be read.
        KeyboardInterrupt: or ``Stopped``, the kind of it with a checkpoint of that iteration.
    """
    (preemption,) = (hook for hook in runner.hooks if isinstance(hook, PreemptionHook))
    build_loop(runner, 'train')
    build_loop(runner, 'val')
    try:
        with preemption.listening(), usage_errors_of_run(runner, 'train'):
            runner.train()
    except (KeyboardInterrupt, Exception) as error:
        if not is_interrupt(error):
            raise
        is_stopped = isinstance(error, Stopped)
        if runner.rank == 0:
            advice = (
                f'no checkpoint in {runner.work_dir} yet: the same command starts again'
            )
            latest = Run(Path(runner.work_dir)).last
            if latest:
                advice = (
                    f'the last checkpoint is {latest}: the same command with --resume '
                    'continues'
                )
            place = error if is_stopped else f'at iteration {runner.iter}'
            print(f'\nstopped {place}; {advice}', file=sys.stderr)
        if is_stopped:
            raise
        raise KeyboardInterrupt from error


def build_loop(runner: Runner, loop: str) -> None:
    """Build a loop of a Runner, with its data and evaluator, before the Runner uses it."""
    parts = building(f'{loop}_cfg, {loop}_dataloader or {loop}_evaluator')
    quiet = contextlib.redirect_stdout(io.StringIO())  # what pycocotools prints
    with parts, quiet, silent_log_errors(), show_elapsed('labels'):
        getattr(runner, f'{loop}_loop')


@contextlib.contextmanager
def usage_errors_of_run(runner: Runner, loop: str) -> Iterator[None]:
    """Within this context, errors become UsageErrors, with the batch of a wrong value.

    After a training has diverged, any error follows from it, such as an unmatched matrix.
    """
    try:
        with silent_log_errors():
            yield
    except RunError as error:
        raise UsageError(str(error)) from None
    except Exception as error:
        if is_interrupt(error):
            raise
        reason = lost_process(runner, error)
        if reason is None:
            if isinstance(error, NAMED):
                raise
            reason = divergence_message(runner, error)
        if reason:
            raise UsageError(reason) from None
        misfit = None if runner.iter else misfit_text(model_of(runner), error)
        if misfit:
            raise UsageError(misfit) from error
        if not isinstance(error, (ValueError, AssertionError)):
            raise
        text = str(error) or type(error).__name__
        images = getattr(runner, 'batch', ())
        if images:  # none before the first one
            size = runner.cfg[f'{loop}_dataloader'].get('batch_size', 1)
            text += (
                f' ({loop}_dataloader.batch_size={size}, images {", ".join(images)})'
            )
        raise UsageError(text) from error
    finally:
        for hook in runner.hooks:
            if isinstance(hook, ProgressHook):
                hook.remove_bar()


def lost_process(runner: Runner, error: BaseException | None) -> str | None:
    """The reason, if an error is that another process ended: one that loads, or another rank.

    PyTorch raises an error wherever this process is when one that loads is killed, unless reading
    from the killed process fails before.
    """
    with contextlib.suppress(ValueError):  # not in the main thread
        # PyTorch's handler would raise again for the next one that ends.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if isinstance(error, (ConnectionError, EOFError)):
        time.sleep(0.1)  # the process that was read from may not have ended
    try:
        signal_handling._error_if_any_worker_fails()
    except RuntimeError as failure:
        error = failure
    while error is not None:
        text = ' '.join(str(error).split())
        if 'gloo/transport' in text or isinstance(error, distributed.DistError):
            reason = (
                'another process of this run has ended, or hangs: its own lines say why'
            )
            return f'{reason} ({text.partition(". ")[0]})'
        if LOST_WORKER in text:
            return lost_worker_text(runner, text)
        error = error.__context__
    return None


def lost_worker_text(runner: Runner, problem: str) -> str:
    """What to do when a process that loads was killed, as PyTorch's ``problem`` says."""
    numbers = []
    for key, loader in runner.cfg.items():
        if key.endswith('_dataloader') and loader:
            numbers.append(f'{key}.num_workers={loader.get("num_workers", 0)}')
    text = (
        f'a loading process was ended ({problem}), probably for lack of memory: ask for more, or '
        f'set lower {", ".join(numbers)}'
    )
    latest = Run(Path(runner.work_dir)).last
    if latest:
        text += f'; --resume continues from {latest}'
    return text


def init_rank() -> tuple[int, int]:
    """The rank of this process, which takes the GPU of its number, and the count of all.

    They are RANK and WORLD_SIZE of the environment, which torchrun sets; 0 and 1 without them.
    UsageError if RANK is no number below WORLD_SIZE.
    """
    rank = os.environ.get('RANK', '0')
    count = os.environ.get('WORLD_SIZE', '1')
    if not (rank.isdecimal() and count.isdecimal() and int(rank) < int(count)):
        raise UsageError(
            f'RANK={rank}: give a number below WORLD_SIZE={count}, from 0 on'
        )
    if 'LOCAL_RANK' in os.environ and torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
    return int(rank), int(count)


def should_merge(rank: int, count: int) -> bool:
    """True if this process is to merge: the first one, as soon as the others are here, too.

    Without MASTER_ADDR, as in a job array, none does: one alone merges later. Processes are
    connected here and no earlier: in a group, mmengine draws in the first process only.
    """
    if count > 1 and 'MASTER_ADDR' not in os.environ:
        print(
            f'process {rank + 1} of {count} is done: when all are, the command alone merges'
        )
        return False
    if count > 1:
        with building('another process'):
            join_group({'backend': 'gloo', 'timeout': LONGEST})
    return rank == 0
