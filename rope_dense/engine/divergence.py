"""A training that stops when it diverges, before weights that are not finite are saved."""

import math
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from .checkpoint_hook import model_of
from .train_loop import AnyRunner


class RunError(Exception):
    """A training that would not be the one of its config; the message says what to do."""


PATIENCE = 3  # iterations; dynamic loss scaling of fp16 expects, and skips, single ones
# In errors of SciPy's matcher and of COCO's metric: finite weights can be too large, too.
SIGNS = ('matrix contains invalid numeric entries', 'scores must not be NaN')


@HOOKS.register_module()
class DivergenceHook(Hook):
    """Stops a training whose loss or gradient stays infinite or NaN, or whose weights are.

    A step whose gradient is not finite is left out, and a line counts it and names its images: one
    batch does not end a long training. Its running statistics are put back. The loss is the one
    that mmengine logs, after each iteration. Weights are checked before each validation, which
    would blame an image, and each save, so every checkpoint has finite weights.

    Raises:
        RunError: it says since when, what to lower, and which checkpoint is the last.
    """

    priority = 'ABOVE_NORMAL'  # behind the loss, before moving averages and checkpoints

    def __init__(self) -> None:
        self.done = 0  # iterations
        self.since: int | None = None  # the first of them with such a loss or gradient
        self.left_out = 0  # steps
        self.images: list[str] = []  # of the batches since the last step
        self.buffers: list[tuple[Tensor, Tensor]] = []  # and their earlier values
        self.bad = ''  # what is not finite in this iteration
        self.last = ''  # and was in the last such

    def before_train(self, runner: AnyRunner) -> None:
        optimizer = getattr(runner.optim_wrapper, 'optimizer', None)
        if optimizer:
            optimizer.register_step_pre_hook(partial(self.leave_out, runner))
            optimizer.register_step_post_hook(lambda *_: self.images.clear())

    def before_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None
    ) -> None:
        self.images += map(os.path.basename, getattr(runner, 'batch', ()))
        self.buffers = [(x, x.detach().clone()) for x in runner.model.buffers()]

    def leave_out(
        self, runner: Runner, optimizer: Optimizer, *arguments: object
    ) -> None:
        """Take gradients that are not finite from an optimizer, which then changes no weight.

        fp16 does not get here: its scaler leaves out such steps.
        """
        params: list[nn.Parameter] = []
        for group in optimizer.param_groups:
            params += group['params']
        norm = nn.utils.get_total_norm([p.grad for p in params if p.grad is not None])
        if math.isfinite(norm.full_tensor() if isinstance(norm, DTensor) else norm):
            return
        for param in params:
            param.grad = None
        self.left_out += 1
        self.bad = 'gradient'
        runner.logger.warning(
            f'the gradient of iteration {runner.iter + 1} is not finite: its step is left out '
            f'({self.left_out} until now); its images: {", ".join(self.images)}'
        )

    def after_train_iter(
        self, runner: Runner, batch_idx: int, *args: Any, **others: Any
    ) -> None:
        self.done = runner.iter + 1
        losses = runner.message_hub.log_scalars.get('train/loss')
        if losses is not None and not math.isfinite(losses.current()):
            self.bad = 'loss'
        if not self.bad:
            self.since = None
            return
        for buffer, value in self.buffers:
            buffer.detach().copy_(value)
        self.last = self.bad
        self.bad = ''
        self.since = self.since or self.done
        if self.done - self.since + 1 >= PATIENCE:
            raise RunError(self.explain(runner))

    def before_val_epoch(self, runner: Runner) -> None:
        if not all_finite(weights_of(runner)):
            raise RunError(self.explain(runner))

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        if not all_finite(checkpoint['state_dict']):
            raise RunError(self.explain(runner))

    def explain(self, runner: AnyRunner, what: str = 'weights') -> str:
        """The numbers that are not finite and the way out, in one line."""
        fact = f'the {what} are not finite after iteration {self.done}'
        if self.since is not None:
            name = self.bad or self.last or 'loss'
            fact = f'the {name} is not finite since iteration {self.since}'
        settings = runner.cfg.optim_wrapper
        name = 'own.lr' if runner.cfg.get('own') else 'optim_wrapper.optimizer.lr'
        other = ''
        is_mixed = settings.get('type') == 'AmpOptimWrapper'
        if is_mixed and settings.get('dtype') != 'bfloat16':
            other = ', or take --amp bf16 in place of fp16'
        last = Path(runner.work_dir, 'last_checkpoint')
        saved = 'nothing was saved'
        if last.is_file():
            saved = f'the last checkpoint, {last.read_text().strip()}, is from before'
        return f'{fact}: lower {name}={settings.optimizer.lr}{other}; {saved}'


def divergence_message(runner: AnyRunner, error: Exception) -> str | None:
    """The message of a training that diverged before an error ended it; None for others."""
    for hook in runner.hooks:
        if isinstance(hook, DivergenceHook) and hook.done:
            if not all_finite(weights_of(runner)):
                return hook.explain(runner)
            if any(sign in str(error) for sign in SIGNS):
                return hook.explain(runner, 'predictions')
    return None


def weights_of(runner: AnyRunner) -> dict[str, Any]:
    """The weights of the model; in a sharded training, the share of this process."""
    return model_of(runner).state_dict()


def all_finite(weights: Mapping[str, Any]) -> bool:
    """Return whether all numbers of a model's state are finite."""
    for value in weights.values():
        if isinstance(value, DTensor):
            value = value.to_local()
        if isinstance(value, Tensor) and not torch.isfinite(value).all():
            return False
    return True
