"""Predictions of a model on the test data of its config."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import torch
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import DefaultScope
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement
from torch.utils.data import DataLoader

PROGRESS_SECONDS = 10.0


def build_loader(cfg: Config) -> DataLoader:
    """Build the test data of a config."""
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        return Runner.build_dataloader(cfg.test_dataloader, seed=0)


def predict(model: BaseModel, loader: DataLoader) -> Iterator[BaseDataElement]:
    """Yield the data sample of each image with its prediction, on the CPU; print progress."""
    started = shown = time.monotonic()
    for done, batch in enumerate(loader, start=1):
        with torch.no_grad():
            samples = model.test_step(batch)
        for sample in samples:
            yield sample.cpu()
        if time.monotonic() - shown > PROGRESS_SECONDS:
            shown = time.monotonic()
            left = (shown - started) / done * (len(loader) - done)
            print(f'report: {done} of {len(loader)} batches, {left:.0f} s left', file=sys.stderr)
