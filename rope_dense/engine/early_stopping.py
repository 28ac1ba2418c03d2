"""Early stopping that a resumed run continues."""

from mmengine.hooks import EarlyStoppingHook
from mmengine.registry import HOOKS
from mmengine.runner import FlexibleRunner, Runner

STATE = 'early_stopping'  # a key of mmengine's message hub, which checkpoints contain


@HOOKS.register_module()
class ResumableEarlyStoppingHook(EarlyStoppingHook):
    """mmengine's EarlyStoppingHook, whose count and best score are in the checkpoints."""

    def before_train(self, runner: Runner | FlexibleRunner) -> None:
        state = runner.message_hub.get_info(STATE, {})
        if state.get('monitor') == self.monitor:
            self.wait_count, self.best_score = state['wait_count'], state['best_score']
        if self.wait_count >= self.patience:
            runner.train_loop.stop_training = True
            runner.logger.warning(f'resume: stopped after {self.wait_count} evaluations, as before')

    def after_val_epoch(self, runner: Runner | FlexibleRunner, metrics: dict[str, float]) -> None:
        super().after_val_epoch(runner, metrics)
        state = dict(wait_count=self.wait_count, best_score=float(self.best_score))
        runner.message_hub.update_info(STATE, dict(state, monitor=self.monitor))
