"""Predictions on the test data of a config, and the images with the worst and the best."""

import io
from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from mmengine.config import Config
from mmengine.evaluator import BaseMetric
from mmengine.model import BaseModel
from mmengine.registry import METRICS, DefaultScope
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement
from torch.utils.data import DataLoader

from ..data.images.sources import ImageReader
from ..data.tiles.band_image import open_image
from ..data.tiles.evaluation import TileJoiner
from ..engine.figure_source import FigureSource
from ..project.building import build_part
from ..project.contents import box_limit, evaluators
from ..utils.config_parts import pipelines
from ..utils.errors import UsageError
from ..utils.progress import progress
from .page import ReportPage
from .record import Row

WORST, BEST = 6, 3  # images
PICTURES = [
    *(f'worst_{number}.png' for number in range(1, WORST + 1)),
    *(f'best_{number}.png' for number in range(1, BEST + 1)),
]
Part = tuple[int, int, int, int]  # left, top, right, bottom in pixels of an image
# Reads a picture, or a part of it: RGB uint8 [H, W, 3].
ReadPicture = Callable[[str, Part | None], np.ndarray]


def build_loader(cfg: Config) -> DataLoader:
    """Build the test data of a config."""
    quiet = redirect_stdout(io.StringIO())  # what pycocotools prints
    with DefaultScope.overwrite_default_scope(cfg.default_scope), quiet:
        return Runner.build_dataloader(cfg.test_dataloader, seed=0)


def known_mean(values: Iterable[float]) -> float:
    """The mean of figures of classes, without those that are not defined; NaN for none."""
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else np.nan


def build_metric(cfg: Config, kind: str, **settings: object) -> BaseMetric:
    """Build the metric of a config's test; UsageError if it is of another kind."""
    key, node = evaluators(cfg, 'test_evaluator')[0]
    if not node.type.endswith(kind):
        raise UsageError(f'report: {key} is {node.type}; give {kind}')
    with redirect_stdout(io.StringIO()):  # what pycocotools prints
        return build_part(cfg, key, METRICS, node, **settings)


def evaluated_loader(page: ReportPage, cfg: Config) -> DataLoader:
    """Build the test data of a config, which the page names with what counts."""
    loader = build_loader(cfg)
    weights = page.record.about['checkpoint']
    found = FigureSource.of(cfg, loader.dataset, checkpoint=weights)
    source = replace(found, evaluator='this report', limit=box_limit(cfg))
    page.record.source = asdict(source)
    page.record.about['figures'] = str(source)
    return loader


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
                window = part or (0, 0, image.width, image.height)
                shown = reader.picture(image.window(*window))
            else:
                shown = reader.picture(reader.read(Path(path)))
                if part:
                    left, top, right, bottom = part
                    shown = shown[top:bottom, left:right]
        except ValueError as error:
            raise UsageError(str(error)) from error
        return np.ascontiguousarray(shown[..., ::-1])

    return read


class Image(NamedTuple):
    """An image that a report may show.

    Attributes:
        score: the worst image has the least.
        row: its path and figures, for report.json.
        content: arrays that its picture is drawn from.
    """

    score: Any
    row: Row
    content: Any


class Ranked:
    """The worst and the best of the images that were added; the others are not kept."""

    def __init__(self) -> None:
        self.images: list[Image] = []

    def add(self, score: Any, row: Row, content: Any = None) -> None:
        """Add an image, see ``Image``; of equal scores the first counts as the worse."""
        insort(self.images, Image(score, row, content), key=lambda image: image.score)
        if len(self.images) > WORST + BEST:
            del self.images[WORST]

    def add_to(
        self,
        page: ReportPage,
        text: str,
        draw: Callable[[Image], np.ndarray],
        caption: Callable[[Row], str],
    ) -> None:
        """Add both as sections.

        Args:
            text: how to read a picture.
            draw: the picture of an image, BGR.
            caption: of a row, after the name of the file.
        """
        worst = self.images[:WORST]
        best = self.images[WORST:][::-1]
        page.record.worst = [image.row for image in worst]
        page.record.best = [image.row for image in best]
        for title, images in (('Worst', worst), ('Best', best)):
            page.section(f'{title} pictures', text)
            for number, image in enumerate(images, start=1):
                words = f'{Path(image.row["path"]).name}: {caption(image.row)}'
                name = f'{title.lower()}_{number}'
                with page.drawing(image.row['path']):
                    page.add_picture(name, draw(image), words)


def side_by_side(*pictures: np.ndarray) -> np.ndarray:
    """Pictures [H, W, 3] of one height beside each other, with white between them."""
    height, width = pictures[0].shape[:2]
    gap = np.full((height, max(6, width // 40), 3), 255, np.uint8)
    parts = [pictures[0]]
    for picture in pictures[1:]:
        parts += [gap, picture]
    return np.hstack(parts)
