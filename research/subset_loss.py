"""The loss on a few fixed images before and after a training run, with its time and memory."""

import json
from pathlib import Path

import torch
from mmengine.dataset import pseudo_collate
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.registry import DATASETS, HOOKS
from mmengine.runner import Runner
from torch import Tensor

from rope_dense.utils.disk import atomic_write_text
from rope_dense.utils.process import peak_rss


@HOOKS.register_module()
class SubsetLossHook(Hook):
    """Report the loss of a fixed subset before and after a run.

    The training loss of single batches says little on a small run: images and augmentation differ.
    This hook takes the same images, without augmentation and with the same random numbers
    (denoising, drop path), before the first and after the last iteration. It logs the result and
    writes ``subset_loss.json`` to the work folder: loss_start, loss_end, iterations,
    seconds_per_iteration (without validation) and peak_memory_gb (of the GPU if there is one, else
    of the process).

    Args:
        dataset: config of the data set; its pipeline should have no random step. All its images are
            used, so set ``indices`` to a number.
        seed: of the random numbers in the loss.
    """

    priority = 'LOW'

    def __init__(self, dataset: dict, seed: int = 0) -> None:
        self.dataset, self.seed = dataset, seed
        self.loss_start = float('nan')

    def before_train(self, runner: Runner) -> None:
        self.loss_start = self.subset_loss(runner)
        runner.logger.info(
            f'loss of the fixed subset before training: {self.loss_start:.3f}'
        )

    def after_train(self, runner: Runner) -> None:
        report = dict(
            loss_start=self.loss_start,
            loss_end=self.subset_loss(runner),
            iterations=runner.iter,
            seconds_per_iteration=float(
                runner.message_hub.get_scalar('train/time').mean()
            ),
            peak_memory_gb=peak_memory_gb(),
        )
        runner.logger.info(f'fixed subset: {json.dumps(report)}')
        path = Path(runner.work_dir, 'subset_loss.json')
        atomic_write_text(path, json.dumps(report, indent=2) + '\n')

    @torch.no_grad()
    def subset_loss(self, runner: Runner) -> float:
        """Mean loss of the images, one by one, the model in training mode."""
        dataset, model = DATASETS.build(self.dataset), runner.model
        was_training = model.training
        model.train()
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            losses = [
                image_loss(model, dataset[index]) for index in range(len(dataset))
            ]
        model.train(was_training)
        return torch.stack(losses).mean().item()


def image_loss(model: BaseModel, sample: dict) -> Tensor:
    """Total loss of one sample of a data set, a scalar."""
    data = model.data_preprocessor(pseudo_collate([sample]), training=True)
    total, _ = model.parse_losses(model(**data, mode='loss'))
    return total


def peak_memory_gb() -> float:
    """Peak of memory so far in 10^9 bytes: of the GPU where one is in use, else of the process."""
    return (
        torch.cuda.max_memory_allocated() if torch.cuda.is_available() else peak_rss()
    ) / 1e9
