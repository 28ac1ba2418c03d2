"""Predictions of a model on the test data of its config."""

import io
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import torch
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import DefaultScope
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement
from torch.utils.data import DataLoader

from ..datasets.images.sources import ImageReader
from ..large_images.evaluation import TileJoiner
from ..project.errors import UsageError
from ..utils.config_parts import pipelines
from ..utils.progress import progress

ReadPicture = Callable[[str], np.ndarray]


def build_loader(cfg: Config) -> DataLoader:
    """Build the test data of a config."""
    quiet = redirect_stdout(io.StringIO())  # what pycocotools prints
    with DefaultScope.overwrite_default_scope(cfg.default_scope), quiet:
        return Runner.build_dataloader(cfg.test_dataloader, seed=0)


def predict_samples(model: BaseModel, loader: DataLoader) -> Iterator[BaseDataElement]:
    """Yield the data sample of each image with its prediction, on the CPU; see ``TileJoiner``."""
    joiner = TileJoiner()
    for batch in progress(loader, 'report'):
        with torch.no_grad():
            samples = model.test_step(batch)
        for sample in joiner.join(samples):
            yield sample.cpu()


def picture_reader(cfg: Config) -> ReadPicture:
    """A function that reads an image of the test data by its path, RGB uint8 [H, W, 3].

    16-bit images are as the model sees them, see ``LoadDeepImage``; of more channels three are
    shown, see ``LoadBands``. A file that cannot be read any
    more is a UsageError.
    """
    reader = ImageReader(next(pipelines(cfg.test_dataloader.dataset)))

    def read(path: str) -> np.ndarray:
        try:
            pixels = reader.read(Path(path))
        except ValueError as error:
            raise UsageError(str(error)) from error
        return np.ascontiguousarray(reader.picture(pixels)[..., ::-1])

    return read
