"""Rows of classes that stay when a training starts from a model of other classes."""

from mmengine.hooks import Hook

from ..checkpoints.class_rows import fill_rows
from .checkpoint_hook import model_of
from .train_loop import AnyRunner


class ClassRowsHook(Hook):
    """Completes the weights of a checkpoint by the model's own rows of classes, see ``keep_rows``.

    They are initialised by then, and equal in all processes.
    """

    priority = 'VERY_HIGH'  # before an average of the weights starts from them

    def after_load_checkpoint(self, runner: AnyRunner, checkpoint: dict) -> None:
        fill_rows(checkpoint, model_of(runner).state_dict())
