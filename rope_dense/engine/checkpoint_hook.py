"""Checkpoints that are complete or absent, whenever the process ends."""

from __future__ import annotations

import math
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from numbers import Real
from pathlib import Path

from mmengine.dist import is_main_process
from mmengine.hooks import CheckpointHook
from mmengine.registry import HOOKS
from mmengine.runner import FlexibleRunner, Runner

from ..utils.atomic_write import PARTIAL, atomic_write


@HOOKS.register_module()
class AtomicCheckpointHook(CheckpointHook):
    """mmengine's CheckpointHook, which removes a checkpoint only after the next is complete.

    A checkpoint is written to a partial file, flushed to the disk and renamed; ``last_checkpoint``
    likewise; the oldest checkpoint is removed last (by mmengine first). Partial files of a killed
    process are removed when training starts. ``save_best`` is mmengine's own, which first removes
    the best checkpoint; the last checkpoint exists meanwhile. A result without a meaning, NaN or
    COCO's -1 where there is no object, is no best one: see ``after_val_epoch``.

    Arguments: see CheckpointHook. Checked in test_resume.py by killing a process in the middle of a
    write.

    Raises:
        ValueError: ``out_dir`` is on a remote store, which has no renaming.
    """

    keep_ckpt_ids: deque[int]  # steps, made in before_train
    warned = False  # of results without a meaning

    def before_train(self, runner: Runner | FlexibleRunner) -> None:
        if '://' in str(self.out_dir):
            raise ValueError(f'out_dir={self.out_dir}: AtomicCheckpointHook writes to folders only')
        super().before_train(runner)
        best = runner.message_hub.runtime_info.get('best_ckpt')
        if best and Path(best).parent != Path(self.out_dir):
            self.best_ckpt_path = None  # of another run, which this one resumes: not to be removed
        if is_main_process():
            for path in Path(self.out_dir).glob(f'*{PARTIAL}'):
                path.unlink()

    def after_val_epoch(self, runner: Runner | FlexibleRunner, metrics: dict[str, float]) -> None:
        """Save the best checkpoint, and take results without a meaning out of `metrics`.

        So ``EarlyStoppingHook``, which comes later, does not see them either.
        """
        empty = {name: value for name, value in metrics.items() if is_empty(value)}
        super().after_val_epoch(runner, {**metrics, **dict.fromkeys(empty)})  # None is no best
        for name in empty:
            del metrics[name]
        chosen = [name for name in empty if self.save_best and name in self.key_indicators]
        if chosen and not self.warned:
            self.warned = True
            runner.logger.warning(
                f'{chosen[0]} is {empty[chosen[0]]:g}: the validation images have no object or '
                'label to compare with, so no best checkpoint is chosen; look at val_dataloader'
            )

    def _save_checkpoint_with_step(
        self, runner: Runner | FlexibleRunner, step: int, meta: dict
    ) -> None:
        path = Path(self.out_dir, self.filename_tmpl.format(step))
        outdated = self._register(runner, step)
        self.last_ckpt = str(path)
        runner.message_hub.update_info('last_ckpt', self.last_ckpt)
        with written_by_main(path) as partial:
            runner.save_checkpoint(
                self.out_dir,
                partial.name,
                save_optimizer=self.save_optimizer,
                save_param_scheduler=self.save_param_scheduler,
                meta=meta,
                by_epoch=self.by_epoch,
                **self.args,
            )
        with written_by_main(Path(runner.work_dir, 'last_checkpoint')) as partial:
            if is_main_process():
                partial.write_text(self.last_ckpt)
        if is_main_process():
            for old in outdated:
                Path(self.out_dir, self.filename_tmpl.format(old)).unlink(missing_ok=True)

    def _register(self, runner: Runner | FlexibleRunner, step: int) -> list[int]:
        """Add a step to the kept ones; return the steps whose checkpoints it replaces."""
        if self.max_keep_ckpts <= 0:
            return []
        steps = [*(earlier for earlier in self.keep_ckpt_ids if earlier != step), step]
        self.keep_ckpt_ids = deque(steps, self.max_keep_ckpts)
        runner.message_hub.update_info('keep_ckpt_ids', list(self.keep_ckpt_ids))
        return steps[: -self.max_keep_ckpts]


def is_empty(result: object) -> bool:
    """Return whether a metric had nothing to compare: NaN, or -1 as pycocotools says."""
    return isinstance(result, Real) and (math.isnan(result) or result == -1)


def written_by_main(path: Path) -> AbstractContextManager[Path]:
    """``atomic_write`` in the main process; the others get the path, which they do not use."""
    return atomic_write(path) if is_main_process() else nullcontext(path)
