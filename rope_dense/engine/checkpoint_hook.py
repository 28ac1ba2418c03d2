"""Checkpoints that are complete or absent, whenever the process ends."""

from __future__ import annotations

from collections import deque
from contextlib import AbstractContextManager, nullcontext
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
    the best checkpoint; the last checkpoint exists meanwhile.

    Arguments: see CheckpointHook. Checked in test_resume.py by killing a process in the middle of a
    write.

    Raises:
        ValueError: ``out_dir`` is on a remote store, which has no renaming.
    """

    keep_ckpt_ids: deque[int]  # steps, made in before_train

    def before_train(self, runner: Runner | FlexibleRunner) -> None:
        if '://' in str(self.out_dir):
            raise ValueError(f'out_dir={self.out_dir}: AtomicCheckpointHook writes to folders only')
        super().before_train(runner)
        if is_main_process():
            for path in Path(self.out_dir).glob(f'*{PARTIAL}'):
                path.unlink()

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


def written_by_main(path: Path) -> AbstractContextManager[Path]:
    """``atomic_write`` in the main process; the others get the path, which they do not use."""
    return atomic_write(path) if is_main_process() else nullcontext(path)
