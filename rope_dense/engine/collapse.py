"""A warning while features that are trained without labels collapse."""

import sys

from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner

RANK, BEFORE = 'features/rank', 'rank_before'


@HOOKS.register_module()
class CollapseHook(Hook):
    """Evaluates before training, and says when the features fill far fewer directions than then.

    Args:
        share: of the effective rank before training, below which the line is printed.
    """

    priority = 'VERY_LOW'

    def __init__(self, share: float = 0.5) -> None:
        self.share = share

    def before_train(self, runner: Runner) -> None:
        if runner.iter == 0 and runner.val_loop is not None:
            runner.val_loop.run()

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        if not metrics or RANK not in metrics:
            return
        if runner.iter == 0:
            runner.message_hub.update_info(BEFORE, metrics[RANK])
        before = runner.message_hub.get_info(BEFORE)
        if before and metrics[RANK] < self.share * before and runner.rank == 0:
            print(
                f'warning: the features fill {metrics[RANK]:.0f} directions, {before:.0f} before '
                'training: they collapse; a lower own.lr, fewer own.epochs or a smaller own.lora '
                'keeps more of them',
                file=sys.stderr,
            )
