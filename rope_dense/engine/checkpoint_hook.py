"""Hooks of checkpoints: complete files, a restart from the best, early stopping that is resumed."""

import json
import logging
import math
import os
import time
from collections import deque
from contextlib import nullcontext
from dataclasses import asdict
from numbers import Real
from pathlib import Path
from typing import Any

from mmengine.dist import barrier, is_main_process
from mmengine.hooks import CheckpointHook, EarlyStoppingHook, EMAHook, Hook
from mmengine.logging import print_log
from mmengine.model import BaseModel, is_model_wrapper
from mmengine.registry import HOOKS
from mmengine.runner import CheckpointLoader, Runner

from ..utils.disk import BEST, LAST, TRAINING
from ..utils.results import Results
from ..utils.validation import checked_integer
from .figure_source import FigureSource
from .train_loop import EVALUATED, AnyRunner, epoch_length


@HOOKS.register_module()
class AtomicCheckpointHook(CheckpointHook):
    """mmengine's CheckpointHook, which removes a checkpoint only after the next is complete.

    A checkpoint, the last or the best, is written to a partial file, flushed to the disk, recorded
    (see ``Results``) and renamed; ``last_checkpoint`` and ``best_checkpoint.json`` likewise; what
    it replaces is removed last (by mmengine first), unless it was changed. After a validation the
    checkpoint of its iteration is written again, with the results. A result without a meaning, NaN
    or COCO's -1 where there is no object, is no best one.

    Arguments: see CheckpointHook; ``save_best`` is one metric. After ``save_minutes`` without a
    checkpoint, ``PreemptionHook`` has one written. Checked in test_resume.py and
    test_best_checkpoint.py by killing processes in the middle of a write and of a validation.

    Raises:
        ValueError: ``out_dir`` is on a remote store, which has no renaming, or ``save_best`` has
            several metrics.
    """

    keep_ckpt_ids: deque[int]  # steps, made in before_train
    warned = False  # of results without a meaning
    position: dict[str, int] = {}  # epoch and iteration of what is being written

    def __init__(
        self, *arguments: Any, save_minutes: float | None = None, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self.save_minutes = save_minutes or math.inf
        if len(self.save_best or ()) > 1:
            raise ValueError(f'save_best={self.save_best}: give one metric')

    def before_train(self, runner: AnyRunner) -> None:
        if '://' in str(self.out_dir):
            raise ValueError(
                f'out_dir={self.out_dir}: AtomicCheckpointHook writes to folders only'
            )
        info = runner.message_hub.runtime_info
        # Of these mmengine would remove any file at once.
        kept = info.pop('keep_ckpt_ids', ())
        super().before_train(runner)
        self.written = time.monotonic()
        self.keep_ckpt_ids = deque(kept)
        self.last_ckpt = info.get('last_ckpt')
        best = info.get('best_ckpt')
        folder = Path(self.out_dir)
        if best and Path(best).parent != folder:  # the run was copied, or is another
            copy = folder / Path(best).name
            self.best_ckpt_path = str(copy) if copy.is_file() else None
            info['best_ckpt'] = self.best_ckpt_path or best
        if is_main_process():
            self.lists = Results(runner.work_dir, TRAINING)
            for name in (LAST, BEST):
                path = Path(runner.work_dir, name)
                if path.is_file():  # of a resumed run
                    self.lists.note(path, path)
            self.results = Results(self.out_dir, TRAINING)  # perhaps on another disk

    def after_val_epoch(self, runner: AnyRunner, metrics: dict[str, float]) -> None:
        """Save the best checkpoint, and take results without a meaning out of `metrics`.

        So ``EarlyStoppingHook``, which comes later, does not see them either.
        """
        runner.message_hub.update_info(EVALUATED, runner.iter)
        empty = {name: value for name, value in metrics.items() if is_empty(value)}
        # None is no best one.
        super().after_val_epoch(runner, metrics | dict.fromkeys(empty))
        for name in empty:
            del metrics[name]
        indicators = self.key_indicators if self.save_best else ()
        chosen = [name for name in empty if name in indicators]
        if chosen and not self.warned:
            self.warned = True
            runner.logger.warning(
                f'{chosen[0]} is {empty[chosen[0]]:g}: the validation images have no object or '
                'label to compare with, so no best checkpoint is chosen; look at val_dataloader'
            )

    def after_val(self, runner: AnyRunner) -> None:
        step = runner.epoch if self.by_epoch else runner.iter
        if self.has(step):  # hooks have put the results into the message hub
            meta = dict(epoch=runner.epoch, iter=runner.iter)
            self._save_checkpoint_with_step(runner, step, meta)

    def save(self, runner: AnyRunner, iteration: int) -> None:
        """Write the checkpoint of any iteration, unless it is there."""
        if iteration and not self.by_epoch and not self.has(iteration):
            runner.logger.info(f'Saving checkpoint at {iteration} iterations')
            meta = dict(epoch=runner.epoch, iter=iteration)
            self._save_checkpoint_with_step(runner, iteration, meta)

    def has(self, step: int) -> bool:
        """Return whether the last checkpoint is the one of a step."""
        return Path(self.last_ckpt or '').name == self.filename_tmpl.format(step)

    def _save_best_checkpoint(
        self, runner: AnyRunner, metrics: dict[str, float | None]
    ) -> None:
        if not self.save_best:
            return
        if 'auto' in self.key_indicators:
            self._init_rule(self.rules, [next(iter(metrics))])
        (key,) = self.key_indicators
        (rule,) = self.rules
        hub = runner.message_hub
        score = metrics[key]
        bar = hub.get_info('best_score', self.init_value_map[rule])
        if score is None or not (score == bar or self.is_better_than[key](score, bar)):
            return  # of equal ones the longest trained is the best
        step = runner.epoch if self.by_epoch else runner.iter
        name = f'best_{key}_{self.filename_tmpl.format(step)}'
        path = Path(self.out_dir, name.replace('/', '_'))
        old = self.best_ckpt_path
        self.best_ckpt_path = str(path)
        hub.update_info_dict(dict(best_score=score, best_ckpt=str(path)))
        states = dict(save_optimizer=False, save_param_scheduler=False, by_epoch=False)
        self.write(runner, path, dict(epoch=runner.epoch, iter=runner.iter), **states)
        if is_main_process():
            epoch = math.ceil(runner.iter / epoch_length(runner.train_dataloader))
            record = dict(
                file=os.path.relpath(path, runner.work_dir),
                metric=key,
                value=float(score),
                iteration=runner.iter,
                epoch=epoch,
                source=asdict(FigureSource.of_runner(runner, 'val')),
            )
            self.lists.write_text(Path(runner.work_dir, BEST), json.dumps(record))
            if old and Path(old) != path:
                self.results.remove(old)
        text = f'the best checkpoint, with {key} {score:.4f}, is {path.name}'
        runner.logger.info(text)

    def _save_checkpoint_with_step(
        self, runner: AnyRunner, step: int, meta: dict
    ) -> None:
        path = Path(self.out_dir, self.filename_tmpl.format(step))
        outdated = self._register(runner, step)
        self.last_ckpt = str(path)
        runner.message_hub.update_info('last_ckpt', self.last_ckpt)
        states = dict(
            save_optimizer=self.save_optimizer,
            save_param_scheduler=self.save_param_scheduler,
        )
        self.write(runner, path, meta, by_epoch=self.by_epoch, **states, **self.args)
        if is_main_process():
            self.lists.write_text(Path(runner.work_dir, LAST), self.last_ckpt)
            for old in outdated:
                self.results.remove(Path(self.out_dir, self.filename_tmpl.format(old)))

    def write(self, runner: AnyRunner, path: Path, meta: dict, **options: Any) -> None:
        """Write a checkpoint, which is complete or absent; see mmengine's ``save_checkpoint``."""
        self.position = dict(meta)
        self.written = time.monotonic()
        writing: Any = nullcontext(path)
        if is_main_process():
            writing = self.results.write(path, keeps=True)
        with writing as partial:
            folder = str(partial.parent)
            runner.save_checkpoint(folder, partial.name, meta=meta, **options)
        self.position = {}

    def before_save_checkpoint(self, runner: AnyRunner, checkpoint: dict) -> None:
        # FlexibleRunner adds one after a validation.
        checkpoint['meta'].update(self.position)

    def _register(self, runner: AnyRunner, step: int) -> list[int]:
        """Add a step to the kept ones; return the steps whose checkpoints it replaces."""
        if self.max_keep_ckpts <= 0:
            return []
        steps = [earlier for earlier in self.keep_ckpt_ids if earlier != step]
        steps.append(step)
        self.keep_ckpt_ids = deque(steps, self.max_keep_ckpts)
        runner.message_hub.update_info('keep_ckpt_ids', list(self.keep_ckpt_ids))
        return steps[: -self.max_keep_ckpts]


def is_empty(result: object) -> bool:
    """Return whether a metric had nothing to compare: NaN, or -1 as pycocotools says."""
    return isinstance(result, Real) and (math.isnan(result) or result == -1)


NOISE = 0.01  # of a metric up to 1: less is no reason to return to a checkpoint


@HOOKS.register_module()
class BestRestartHook(Hook):
    """Loads the best checkpoint so far at the beginning of an epoch.

    Weights and their moving average (``EMAHook``) are taken from the best validation; optimizer
    and schedule continue. DEIMv2 and EdgeCrafter begin their epochs without augmentation so. They
    also restore the state of the optimizer, which mmengine does not save with the best weights; and
    DEIMv2 returns to the best after each of these epochs that is no better, with a decay of the
    average that is smaller by 0.0001, which this hook does not. Without ``save_best``, without a
    validation before, or with a best value below ``NOISE``, as of masks that have not begun to be
    learned, it says so and changes nothing. Checked in tests/engine/test_dense_schedule.py.

    Args:
        epoch: counted from 0.
    """

    priority = 'VERY_HIGH'

    def __init__(self, epoch: int) -> None:
        self.epoch = checked_integer('epoch', epoch, 1)

    def before_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: object | None = None
    ) -> None:
        if runner.iter != self.epoch * epoch_length(runner.train_dataloader):
            return
        barrier()  # the first process may still be writing it
        info = runner.message_hub.runtime_info
        best = info.get('best_ckpt')
        epoch = f'epoch {self.epoch + 1}'  # as in the lines of the log
        reason = ''
        if best is None or not Path(best).is_file():
            reason = (
                'there is no best checkpoint (default_hooks.checkpoint.save_best, and a validation '
                'before)'
            )
        elif info['best_score'] < NOISE:
            reason = f'the best value, {info["best_score"]:.4f}, may be chance'
        if reason:
            print_log(
                f'{epoch} continues with the weights of the last iteration: {reason}',
                logger='current',
                level=logging.WARNING,
            )
            return
        restart_from(runner, best)
        print_log(f'{epoch} begins with the weights of {best}', logger='current')


def restart_from(runner: Runner, path: str) -> None:
    """Load weights and their average; the optimizer keeps its state."""
    contents = CheckpointLoader.load_checkpoint(path, map_location='cpu')
    for hook in runner.hooks:
        if isinstance(hook, EMAHook) and 'ema_state_dict' in contents:
            # A checkpoint has the average as its weights.
            hook._swap_ema_state_dict(contents)
            hook.ema_model.load_state_dict(contents['ema_state_dict'])
    model_of(runner).load_state_dict(contents['state_dict'])


def model_of(runner: AnyRunner) -> BaseModel:
    """The model of a training or test, also of one that is distributed."""
    return runner.model.module if is_model_wrapper(runner.model) else runner.model


STATE = 'early_stopping'  # a key of mmengine's message hub, which checkpoints contain


@HOOKS.register_module()
class ResumableEarlyStoppingHook(EarlyStoppingHook):
    """mmengine's EarlyStoppingHook, whose count and best score are in the checkpoints."""

    def before_train(self, runner: AnyRunner) -> None:
        state = runner.message_hub.get_info(STATE, {})
        if state.get('monitor') == self.monitor:
            self.wait_count = state['wait_count']
            self.best_score = state['best_score']
        if self.wait_count >= self.patience:
            runner.train_loop.stop_training = True
            runner.logger.warning(
                f'resume: stopped after {self.wait_count} evaluations, as before'
            )

    def after_val_epoch(self, runner: AnyRunner, metrics: dict[str, float]) -> None:
        super().after_val_epoch(runner, metrics)
        state = dict(
            wait_count=self.wait_count,
            best_score=float(self.best_score),
            monitor=self.monitor,
        )
        runner.message_hub.update_info(STATE, state)
