"""Label rasters and depth maps of large images, from the blended scores of tiles."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from mmengine.structures import BaseDataElement
from torch import Tensor

from ..datasets.images.bands import no_data
from ..datasets.mask_colours import ignored_label, label_type
from ..utils.journal import Journal, damaged_error
from .image_file import LargeImage
from .predictor import TilePredictor
from .tiles import TileGrid, finished_parts


def segment(
    image: LargeImage,
    grid: TileGrid,
    num_scores: int,
    threshold: float | None,
    predict: TilePredictor,
    journal: Journal,
    rows: range,
) -> None:
    """Add the label rows [rows, width] of an image to a journal, one row of tiles after the other.

    Pixels without data have ``ScoreBlender.no_data``. Rows of tiles above the first one that share
    pixels with it are predicted, too, but not added.

    Args:
        num_scores, threshold: see ``ScoreBlender``.
        predict: a segmentor, or a model of depth.
        rows: of tiles, one or more.
    """
    top = grid.tops[rows[0]]
    above = sum(start + grid.tile_height <= top for start in grid.tops)
    blender = ScoreBlender(grid, journal.folder, num_scores, threshold, above)
    for row in range(rows[journal.finished] if journal.finished else above, rows.stop):
        strip = image.read(grid.tops[row], grid.tops[row] + grid.tile_height)
        scores = map(pixel_scores, predict(grid.tiles_of(strip)))
        labels = blender.blend(row, scores)
        if (missing := no_data(strip[: len(labels)])) is not None:
            labels[missing] = blender.no_data
        if row in rows:
            journal.finish_step(labels.tobytes())
        blender.forget(row - 1)


def pixel_scores(sample: BaseDataElement) -> Tensor:
    """The scores of the pixels of a tile, or their depth [1, H, W]."""
    return (sample.pred_depth_map if 'pred_depth_map' in sample else sample.seg_logits).data


def value_type(num_scores: int, threshold: float | None) -> np.dtype:
    """The type of labels, or of depth; see ``ScoreBlender``."""
    is_depth = num_scores == 1 and threshold is None
    return np.dtype(np.float32) if is_depth else label_type(num_scores)


class ScoreBlender:
    """Labels from the weighted sum of the scores of all tiles that cover a pixel.

    Weights are from ``tile_weights``, along rows and columns; their sum is 1. In memory are
    the scores of one tile, and of the tile to its left where both overlap. Scores where a row
    of tiles overlaps the next one are in files of a folder meanwhile: (shared pixels) x scores x 4
    bytes.

    Args:
        folder: for these files.
        num_scores: K, of each pixel. With one, its label is whether it is above the threshold;
            otherwise the index of the largest.
        threshold: with one score only; None for depth, which has no label but stays as it is.
        first: row of tiles that is blended first.
    """

    def __init__(
        self, grid: TileGrid, folder: Path, num_scores: int, threshold: float | None, first: int = 0
    ) -> None:
        self.grid, self.folder, self.threshold = grid, folder, threshold
        self.num_scores, self.first = num_scores, first
        self.dtype = value_type(num_scores, threshold)
        self.no_data = 0 if self.dtype == np.float32 else ignored_label(num_scores)
        self.finished_rows = finished_parts(grid.tops, grid.height)
        self.finished_columns = finished_parts(grid.lefts, grid.width)
        self.shared = torch.empty(0)  # [K, tile_height, columns that a tile and the next cover]

    def blend(self, row: int, scores: Iterable[Tensor]) -> np.ndarray:
        """The labels [rows, width] above the next row of tiles.

        The row of tiles before has been blended, by this process or an earlier one. Scores [K,
        tile_height, tile_width] are of the tiles from left to right.
        """
        labels = np.empty((self.finished_rows[row], self.grid.width), self.dtype)
        for column, (left, tile_scores) in enumerate(zip(self.grid.lefts, scores, strict=True)):
            part = self.blend_tile(row, column, tile_scores)
            labels[:, left : left + part.shape[1]] = part.numpy()
        return labels

    def blend_tile(self, row: int, column: int, scores: Tensor) -> Tensor:
        """The labels [rows, columns] of a tile that no later tile covers; on the CPU.

        Tiles come row by row, from left to right, with scores [K, tile_height, tile_width].
        """
        rows, columns = self.finished_rows[row], self.finished_columns[column]
        total = scores * self.weights(row, column).to(scores)
        if column > 0:
            total[:, :, : self.shared.shape[2]] += self.shared
        final, self.shared = total[:, :, :columns], total[:, :, columns:].clone()
        if row > self.first:
            above = self.read(row - 1, column).to(final)
            final[:, : above.shape[1]] += above
        if row < len(self.grid.tops) - 1:
            np.save(self.file(row, column), final[:, rows:].cpu().numpy())
        return self.labels_of(final[:, :rows]).cpu()

    def weights(self, row: int, column: int) -> Tensor:
        """Weights of the pixels of a tile, [tile_height, tile_width]."""
        weights = np.outer(self.grid.row_weights[row], self.grid.column_weights[column])
        return torch.from_numpy(weights)

    def labels_of(self, scores: Tensor) -> Tensor:
        """Labels [H, W] of scores [K, H, W]."""
        if self.num_scores > 1:
            return scores.argmax(0)
        return scores[0] if self.threshold is None else (scores[0] > self.threshold).long()

    def file(self, row: int, column: int) -> Path:
        return self.folder / f'scores_{row}_{column}.npy'

    def read(self, row: int, column: int) -> Tensor:
        """The scores that a tile adds to the tile below it, [K, rows, columns].

        Raises:
            JournalError: the file is missing or damaged, or has another shape.
        """
        path = self.file(row, column)
        shared = self.grid.tile_height - self.finished_rows[row]
        shape = (self.num_scores, shared, self.finished_columns[column])
        try:
            scores = np.load(path)
        except (OSError, ValueError, EOFError) as error:
            raise damaged_error(path, str(error)) from error
        if scores.shape != shape:
            raise damaged_error(path, f'shape {scores.shape}, {shape} was written')
        return torch.from_numpy(scores)

    def forget(self, row: int) -> None:
        """Remove the files of a row of tiles that the next row has been blended with."""
        for column in range(len(self.grid.lefts)):
            self.file(row, column).unlink(missing_ok=True)
