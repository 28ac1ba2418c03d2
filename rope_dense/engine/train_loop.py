"""A training loop that a resumed run continues exactly: each iteration has its own random state."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count, islice
from typing import Any, TypeAlias

import numpy as np
import torch
from mmengine.dataset import InfiniteSampler
from mmengine.dist import get_rank, get_world_size
from mmengine.logging import MessageHub
from mmengine.registry import LOOPS
from mmengine.runner import FlexibleRunner, IterBasedTrainLoop, Runner
from torch import nn
from torch.utils.data import DataLoader, Dataset

AnyRunner: TypeAlias = Runner | FlexibleRunner  # of mmengine
EVALUATED = 'evaluated'  # in mmengine's message hub: the last validated iteration


@LOOPS.register_module()
class ResumableTrainLoop(IterBasedTrainLoop):
    """mmengine's iteration-based loop, with data and random numbers that depend on the iteration.

    The random state (Python, NumPy, torch) of each image and each iteration follows from the seed
    of the run, the process and the position, and a resumed run skips earlier batches without
    loading them. So it has the loss curve of an uninterrupted run, whatever the validation in
    between and the number of workers. The epoch, 'epoch' of mmengine's message hub, follows from
    the iteration. A run that ended in a validation, even the last, validates first when resumed.

    It needs the same `randomness.seed` (None gives another data order) and number of processes. On
    a GPU, kernels that add in no fixed order still differ.

    Arguments: see IterBasedTrainLoop. Checked in test_resume.py by killing runs.
    """

    def __init__(
        self,
        runner: AnyRunner,
        dataloader: DataLoader | dict,
        max_iters: int,
        val_begin: int = 1,
        val_interval: int = 1000,
        dynamic_intervals: list[tuple[int, int]] | None = None,
    ) -> None:
        super().__init__(
            runner, dataloader, max_iters, val_begin, val_interval, dynamic_intervals
        )
        batches = SeededBatches(self.dataloader, runner.seed, get_rank())
        self.dataloader_iterator = batches

    def run(self) -> nn.Module:
        """Train from the iteration of the checkpoint, if there is one, to the last; the model."""
        runner = self.runner
        runner.call_hook('before_train')
        runner.call_hook('before_train_epoch')
        self.dataloader_iterator.skip_iter(self._iter)
        if runner.message_hub.get_info(EVALUATED) != self._iter:
            self.validate_if_due()
        while self._iter < self._max_iters and not self.stop_training:
            runner.model.train()
            self.run_iter(next(self.dataloader_iterator))
            self.validate_if_due()
        # It ends its workers; as garbage, each waits for 5 s.
        self.dataloader_iterator.batches = None
        runner.call_hook('after_train_epoch')
        runner.call_hook('after_train')
        return runner.model

    def validate_if_due(self) -> None:
        """Validate at each ``val_interval`` iterations from ``val_begin`` on, and the last."""
        self._decide_current_val_interval()
        due = self._iter % self.val_interval == 0 or self._iter == self._max_iters
        if due and self._iter >= self.val_begin and self.runner.val_loop is not None:
            self.runner.val_loop.run()


class SeededBatches:
    """Endless batches of a data loader; batch i comes with random state i.

    Args:
        loader: its data set, samplers and settings are used; it is not iterated itself.

    Raises:
        ValueError: its sampler has no batch.
    """

    def __init__(self, loader: DataLoader, seed: int, rank: int) -> None:
        dataset: Any = loader.dataset  # one of mmengine's, which have a length
        batches: Any = loader.batch_sampler  # torch's, or one that groups images
        if not len(batches):
            raise ValueError(
                f'{len(dataset)} images do not fill a batch of {batches.batch_size}: '
                'set a smaller train_dataloader.batch_size, or drop_last=False'
            )
        self.loader = loader
        self.seed = (seed, rank)
        self.iteration = 0
        self.batches: Iterator[dict] | None = None

    def skip_iter(self, number: int = 1) -> None:
        """Begin `number` batches later. Called before the first batch."""
        self.iteration += number

    def __iter__(self) -> SeededBatches:
        return self

    def __next__(self) -> dict:
        if self.batches is None:
            self.batches = iter(seeded_loader(self.loader, self.seed, self.iteration))
        batch = next(self.batches)
        set_random_state(*self.seed, self.iteration, 0)  # images have 1, 2, ...
        set_epoch(self.iteration // epoch_length(self.loader))
        self.iteration += 1
        return batch


def seeded_loader(loader: DataLoader, seed: tuple[int, int], start: int) -> DataLoader:
    """A loader like `loader` that begins at batch `start`; each image has a random state."""
    return type(loader)(
        SeededDataset(loader.dataset, seed, epoch_length(loader)),
        batch_sampler=numbered_batches(endless_batches(loader), start),
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        prefetch_factor=loader.prefetch_factor,
    )


def epoch_length(loader: DataLoader) -> int:
    """Iterations in which all processes together go through the data once."""
    batches: Any = loader.batch_sampler  # its sampler is one of mmengine's
    shares = get_world_size() if isinstance(batches.sampler, InfiniteSampler) else 1
    return max(1, len(batches) // shares)


def endless_batches(loader: DataLoader) -> Iterator[list[int]]:
    """The indices of batch after batch; a sampler with an end is shuffled again for each epoch."""
    batches: Any = loader.batch_sampler  # its sampler is one of mmengine's
    for epoch in count():
        batches.sampler.set_epoch(epoch)
        yield from batches


def numbered_batches(
    batches: Iterator[list[int]], start: int
) -> Iterator[list[tuple[int, int, int]]]:
    """(iteration, place in the batch from 1, index) of each image, from iteration `start` on."""
    for iteration, indices in islice(enumerate(batches), start, None):
        yield [(iteration, place, index) for place, index in enumerate(indices, 1)]


class SeededDataset(Dataset):
    """A data set that sets the epoch and the random state of (iteration, place) for an image."""

    def __init__(
        self, dataset: Dataset, seed: tuple[int, int], epoch_length: int
    ) -> None:
        self.dataset = dataset
        self.seed = seed
        self.epoch_length = epoch_length

    def __getitem__(self, key: tuple[int, int, int]) -> dict:
        iteration, place, index = key
        set_random_state(*self.seed, iteration, place)
        set_epoch(iteration // self.epoch_length)
        return self.dataset[index]


def set_random_state(*key: int) -> None:
    """Set the states of Python, NumPy and torch to well separated functions of some integers."""
    states = np.random.SeedSequence(key).generate_state(3)
    random.seed(int(states[0]))
    np.random.seed(states[1])
    torch.manual_seed(int(states[2]))


def set_epoch(epoch: int) -> None:
    """Set the epoch of this process where mmengine's hooks, losses and transforms find it."""
    MessageHub.get_current_instance().update_info('epoch', epoch)
