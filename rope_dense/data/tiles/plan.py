"""The tiles of an image: their places, the weights of their pixels, and a model's predictions."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose, pseudo_collate
from mmengine.model import BaseModel
from mmengine.structures import BaseDataElement

from ...utils.config_parts import pipelines, without_labels
from ...utils.sizes import tile_starts
from ..ground import name_file
from ..images.bands import drop_predictions_without_data, no_data


class Window(NamedTuple):
    """A part of an image in its pixels, right and bottom exclusive."""

    left: int
    top: int
    right: int
    bottom: int


@dataclass(frozen=True)
class TilePlan:
    """The tiles of images of any size: windows for a training, levels for a prediction.

    Args:
        tile, overlap: in pixels of an image at scale 1.
        scales: sizes at which an image is seen: at 0.5 a tile is twice as large, in the image.
    """

    tile: int
    overlap: int
    scales: Sequence[float] = (1.0,)

    def windows(self, height: int, width: int) -> list[Window]:
        """The windows of all scales; each once, where an image is not larger than a tile."""
        found: dict[Window, None] = {}
        for scale in self.scales:
            grid = TileGrid(height, width, *self.at(scale))
            for row, column in np.ndindex(len(grid.tops), len(grid.lefts)):
                found[grid.window(row, column)] = None
        return list(found)

    def at(self, scale: float) -> tuple[int, int]:
        """Tile and overlap at a scale, in pixels of the image."""
        return round(self.tile / scale), round(self.overlap / scale)

    @property
    def halvings(self) -> int:
        """The halvings of an image that a prediction takes, from the largest scale down."""
        return round(np.log2(max(self.scales) / min(self.scales)))


@dataclass(frozen=True)
class TileGrid:
    """Tiles of equal size that cover an image; neighbours share ``overlap`` pixels or more.

    They are evenly spaced, the first begins and the last ends with the image. An image that is not
    larger than a tile has a single one along that axis, of its own size. All lengths are in pixels,
    and the overlap is less than a tile.
    """

    height: int
    width: int
    tile: int
    overlap: int

    @property
    def tile_height(self) -> int:
        return min(self.tile, self.height)

    @property
    def tile_width(self) -> int:
        return min(self.tile, self.width)

    @cached_property
    def tops(self) -> list[int]:
        """First row of each row of tiles."""
        return tile_starts(self.height, self.tile, self.overlap)

    @cached_property
    def lefts(self) -> list[int]:
        """First column of each column of tiles."""
        return tile_starts(self.width, self.tile, self.overlap)

    @cached_property
    def row_weights(self) -> np.ndarray:
        """[rows of tiles, tile_height], see ``tile_weights``."""
        return tile_weights(self.tops, self.tile_height, self.height)

    @cached_property
    def column_weights(self) -> np.ndarray:
        """[columns of tiles, tile_width], see ``tile_weights``."""
        return tile_weights(self.lefts, self.tile_width, self.width)

    def window(self, row: int, column: int) -> Window:
        """The pixels of a tile."""
        top = self.tops[row]
        left = self.lefts[column]
        return Window(
            left,
            top,
            left + self.tile_width,
            top + self.tile_height,
        )

    def tiles_of(self, strip: np.ndarray) -> list[np.ndarray]:
        """The tiles [tile_height, tile_width, 3] of one row of them."""
        return [strip[:, left : left + self.tile_width] for left in self.lefts]

    def __len__(self) -> int:
        return len(self.tops) * len(self.lefts)


def tile_weights(starts: Sequence[int], tile: int, length: int) -> np.ndarray:
    """Weights of the pixels of each tile along one axis, [tiles, tile], float32.

    A weight falls linearly from the middle of a tile to its ends; at every pixel, the weights of
    all tiles are divided by their sum. So a weight is 1 where there is one tile, and two neighbours
    fade linearly into each other.
    """
    pixels = np.arange(tile) + 0.5
    triangle = np.minimum(pixels, tile - pixels)
    total = np.zeros(length)
    for start in starts:
        total[start : start + tile] += triangle
    weights = [triangle / total[start : start + tile] for start in starts]
    return np.stack(weights).astype(np.float32)


def finished_parts(starts: Sequence[int], length: int) -> list[int]:
    """Pixels of each tile, from its start, that no later tile covers."""
    ends = [*starts[1:], length]
    return [end - start for start, end in zip(starts, ends, strict=True)]


class TilePredictor:
    """Predicts each tile as an image of its own, by the test pipeline of a config and the model.

    Built and called within the default scope of the config; the model is in evaluation mode, on its
    device. Of ``batch`` tiles at a time, ``report`` is called after each. Tiles are of ``file``.
    """

    def __init__(
        self,
        model: BaseModel,
        config: Config,
        *,
        batch: int,
        report: Callable[[], None],
        file: Path | None = None,
    ) -> None:
        self.model, self.batch, self.report = model, batch, report
        load, *steps = without_labels(next(pipelines(config.test_dataloader.dataset)))
        load = dict(load, type=load.type.replace('FromFile', 'FromNDArray'))
        self.pipeline = Compose([load, *steps])
        name_file(self.pipeline, file)

    def __call__(
        self, tiles: Sequence[np.ndarray], shrink: int = 1
    ) -> Iterator[BaseDataElement]:
        """Predictions in pixels of tiles, uint8 [H, W, 3] or float32 [H, W, n].

        ``shrink``: pixels of the file in a pixel of the tiles, of a side.
        """
        for start in range(0, len(tiles), self.batch):
            batch = tiles[start : start + self.batch]
            data = []
            for tile in batch:
                pixels = np.ascontiguousarray(tile)
                about = dict(img=pixels, img_id=0, shrink=shrink)
                data.append(self.pipeline(about))
            with torch.no_grad():
                samples = self.model.test_step(pseudo_collate(data))
            for sample, tile in zip(samples, batch, strict=True):
                drop_predictions_without_data(sample, no_data(tile))
                yield sample
                self.report()
