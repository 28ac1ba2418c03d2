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
from ..large_images.band_image import open_image
from ..large_images.evaluation import TileJoiner
from ..project.errors import UsageError
from ..utils.config_parts import pipelines
from ..utils.progress import progress

Part = tuple[int, int, int, int]  # left, top, right, bottom in pixels of an image


# Reads a picture, or a part of it: RGB uint8 [H, W, 3].
ReadPicture = Callable[[str, Part | None], np.ndarray]


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
    """A function that reads an image of the test data by its path, as the test does.

    16-bit images are as the model sees them, see ``LoadDeepImage``; of more channels three are
    shown, see ``LoadBands``. Of images that are tested in tiles only the part is read. A file that
    cannot be read any more is a UsageError.
    """
    dataset = cfg.test_dataloader.dataset
    reader = ImageReader(next(pipelines(dataset)))

    def read(path: str, part: Part | None) -> np.ndarray:
        try:
            if dataset.type == 'TiledDataset':
                image = open_image(path, reader.bands, copies=dataset.copies)
                part = part or (0, 0, image.width, image.height)
                return np.ascontiguousarray(reader.picture(image.window(*part))[..., ::-1])
            shown = reader.picture(reader.read(Path(path)))
        except ValueError as error:
            raise UsageError(str(error)) from error
        left, top, right, bottom = part or (0, 0, *shown.shape[1::-1])
        return np.ascontiguousarray(shown[top:bottom, left:right, ::-1])

    return read
