"""Predictions of a model on the test data of its config.

The worst and the best images of a test.
"""

import io
from bisect import insort
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import DefaultScope
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement
from torch.utils.data import DataLoader

from ..data.images.sources import ImageReader
from ..data.tiles.band_image import open_image
from ..data.tiles.evaluation import TileJoiner
from ..utils.config_parts import pipelines
from ..utils.errors import UsageError
from ..utils.progress import progress
from .page import Page

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
                return np.ascontiguousarray(
                    reader.picture(image.window(*part))[..., ::-1]
                )
            shown = reader.picture(reader.read(Path(path)))
        except ValueError as error:
            raise UsageError(str(error)) from error
        left, top, right, bottom = part or (0, 0, *shown.shape[1::-1])
        return np.ascontiguousarray(shown[top:bottom, left:right, ::-1])

    return read


WORST, BEST = 6, 3
PICTURES = [f'worst_{n + 1}.png' for n in range(WORST)] + [
    f'best_{n + 1}.png' for n in range(BEST)
]


class Image(NamedTuple):
    """An image that a report may show.

    Attributes:
        score: the worst image has the least.
        row: its path and figures, for report.json.
        content: arrays that its picture is drawn from.
    """

    score: Any
    row: dict[str, Any]
    content: Any


class Ranked:
    """The worst and the best of the images that were added; the others are not kept."""

    def __init__(self) -> None:
        self.images: list[Image] = []

    def add(self, score: Any, row: dict[str, Any], content: Any = None) -> None:
        """Add an image, see ``Image``; of equal scores the first counts as the worse."""
        insort(self.images, Image(score, row, content), key=lambda image: image.score)
        if len(self.images) > WORST + BEST:
            del self.images[WORST]

    def add_to(
        self,
        page: Page,
        text: str,
        draw: Callable[[Image], np.ndarray],
        caption: Callable[[dict[str, Any]], str],
    ) -> None:
        """Add both as sections.

        Args:
            text: how to read a picture.
            draw: the picture of an image, BGR.
            caption: of a row, after the name of the file.
        """
        worst, best = self.images[:WORST], self.images[WORST:][::-1]
        for title, name, images in (('Worst', 'worst', worst), ('Best', 'best', best)):
            page.section(f'{title} pictures', text)
            page.figures[name] = [image.row for image in images]
            for number, image in enumerate(images, start=1):
                words = f'{Path(image.row["path"]).name}: {caption(image.row)}'
                with page.drawing(image.row['path']):
                    page.add_picture(f'{name}_{number}', draw(image), words)


def side_by_side(*pictures: np.ndarray) -> np.ndarray:
    """Pictures [H, W, 3] of one height beside each other, with white between them."""
    height, width = pictures[0].shape[:2]
    gap = np.full((height, max(6, width // 40), 3), 255, np.uint8)
    return np.hstack([part for picture in pictures for part in (gap, picture)][1:])
