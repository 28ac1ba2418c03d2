"""A training that continues from its best checkpoint when its last stage begins."""

import logging
from pathlib import Path

from mmengine.dist import barrier
from mmengine.hooks import EMAHook, Hook
from mmengine.logging import print_log
from mmengine.model import is_model_wrapper
from mmengine.registry import HOOKS
from mmengine.runner import CheckpointLoader, Runner

from ..utils.validation import checked_integer
from .train_loop import epoch_length


@HOOKS.register_module()
class BestRestartHook(Hook):
    """Loads the best checkpoint so far at the beginning of an epoch.

    Weights and their moving average (``EMAHook``) are taken from the best validation; optimizer
    and schedule continue. DEIMv2 and EdgeCrafter begin their epochs without augmentation so. They
    also restore the state of the optimizer, which mmengine does not save with the best weights; and
    DEIMv2 returns to the best after each of these epochs that is no better, with a decay of the
    average that is smaller by 0.0001, which this hook does not. Without ``save_best``, or
    without a validation before, it says so and changes nothing. Checked in
    tests/engine/test_dense_schedule.py.

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
        best = runner.message_hub.runtime_info.get('best_ckpt')
        if best is None or not Path(best).is_file():
            print_log(
                f'epoch {self.epoch} continues with the weights of the last iteration: there is no '
                'best checkpoint (default_hooks.checkpoint.save_best, and a validation before)',
                logger='current',
                level=logging.WARNING,
            )
            return
        restart_from(runner, best)
        print_log(f'epoch {self.epoch} begins with the weights of {best}', logger='current')


def restart_from(runner: Runner, path: str) -> None:
    """Load weights and their average; the optimizer keeps its state."""
    contents = CheckpointLoader.load_checkpoint(path, map_location='cpu')
    for hook in runner.hooks:
        if isinstance(hook, EMAHook) and 'ema_state_dict' in contents:
            hook._swap_ema_state_dict(contents)  # a checkpoint has the average as its weights
            hook.ema_model.load_state_dict(contents['ema_state_dict'])
    model = runner.model.module if is_model_wrapper(runner.model) else runner.model
    model.load_state_dict(contents['state_dict'])
