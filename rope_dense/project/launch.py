"""Build and run mmengine's Runner, with or without a GPU."""

import contextlib
import io
import logging
import sys
from collections.abc import Iterator
from itertools import count

import torch
from mmengine.config import Config, ConfigDict
from mmengine.runner import Runner

from ..engine import runner as runners
from ..engine.divergence import divergence
from ..engine.errors import RunError
from ..engine.preemption import PreemptionHook, Stopped
from ..utils.atomic_write import is_interrupt
from ..utils.config_parts import nodes
from ..utils.progress import alive
from .building import NAMED, building
from .errors import UsageError
from .find import last_checkpoint
from .weights import read_safely

RUN_NUMBERS = count()


def build_runner(cfg: Config, launcher: str, trains: bool = False) -> Runner:
    """Build the config's Runner, distributed unless the launcher is 'none'; or UsageError.

    Args:
        trains: the config is written to the work folder.
    """
    cfg.launcher = launcher
    if not trains:  # mmengine knows runs by this name and the second of their start
        cfg.experiment_name = f'run_{next(RUN_NUMBERS)}'
    read_safely()
    logging.raiseExceptions = False  # a log on a full disk: what is written next says so
    with building(f'Runner, --launcher {launcher}'):
        if launcher == 'pytorch' and not torch.cuda.is_available():
            # mmengine would first give each process a GPU. Each process has batch norms of its own:
            # PyTorch synchronises them on GPUs only.
            torch.distributed.init_process_group('gloo')
            for _, node in nodes(cfg.model):
                if node.get('type') == 'SyncBN':
                    node.type = 'BN'
            unused = cfg.get('find_unused_parameters', False)
            default = dict(broadcast_buffers=False, find_unused_parameters=unused)
            wrapper = cfg.get('model_wrapper_cfg')
            wrapper = wrapper or dict(type='MMDistributedDataParallel', **default)
            cfg.model_wrapper_cfg = ConfigDict(wrapper, device_ids=None)
        return runners.build_runner(cfg, trains)


def run_test(runner: Runner) -> None:
    """Test; errors as in ``run_training``."""
    build_loop(runner, 'test')
    with running(runner, 'test'):
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
        with preemption.listening(), running(runner, 'train'):
            runner.train()
    except (KeyboardInterrupt, Exception) as error:
        if not is_interrupt(error):
            raise
        if runner.rank == 0:
            advice = f'no checkpoint in {runner.work_dir} yet: the same command starts again'
            if latest := last_checkpoint(runner.work_dir):
                advice = (
                    f'the last checkpoint is {latest}: the same command with --resume continues'
                )
            place = error if isinstance(error, Stopped) else f'at iteration {runner.iter}'
            print(f'\nstopped {place}; {advice}', file=sys.stderr)
        if isinstance(error, Stopped):
            raise
        raise KeyboardInterrupt from error


def build_loop(runner: Runner, loop: str) -> None:
    """Build a loop of a Runner, with its data and evaluator, before the Runner uses it."""
    quiet = contextlib.redirect_stdout(io.StringIO())  # what pycocotools prints
    with building(f'{loop}_cfg, {loop}_dataloader or {loop}_evaluator'), quiet, alive('labels'):
        getattr(runner, f'{loop}_loop')


@contextlib.contextmanager
def running(runner: Runner, loop: str) -> Iterator[None]:
    """Within this context, errors become UsageErrors, with the batch of a wrong value.

    After a training has diverged, any error follows from it, such as an unmatched matrix.
    """
    try:
        yield
    except RunError as error:
        raise UsageError(str(error)) from None
    except NAMED:
        raise
    except Exception as error:
        if is_interrupt(error):
            raise
        if reason := divergence(runner, error):
            raise UsageError(reason) from None
        if not isinstance(error, (ValueError, AssertionError)):
            raise
        text = str(error) or type(error).__name__
        if images := getattr(runner, 'batch', ()):  # none before the first one
            size = runner.cfg[f'{loop}_dataloader'].get('batch_size', 1)
            text += f' ({loop}_dataloader.batch_size={size}, images {", ".join(images)})'
        raise UsageError(text) from error
