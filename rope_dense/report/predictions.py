"""Predictions of a model on the test data of its config."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import DefaultScope
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement
from torch.utils.data import DataLoader

from ..datasets.images.sources import range_in, read_image
from ..project.errors import UsageError
from ..utils.config_parts import pipelines

PROGRESS_SECONDS = 10.0


def build_loader(cfg: Config) -> DataLoader:
    """Build the test data of a config."""
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        return Runner.build_dataloader(cfg.test_dataloader, seed=0)


def max_value_of(cfg: Config) -> int | None:
    """The value that is white in 16-bit images of the test data, see ``LoadDeepImage``."""
    return range_in(next(pipelines(cfg.test_dataloader.dataset)))


def read_picture(path: str, max_value: int | None) -> np.ndarray:
    """An image of the test data, RGB uint8 [H, W, 3], as the model sees it.

    Raises:
        UsageError: it cannot be read any more.
    """
    pixels = read_image(Path(path), max_value)
    if pixels is None:
        raise UsageError(f'{path}: cannot be read as an image')
    return np.ascontiguousarray(pixels[..., ::-1])


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
