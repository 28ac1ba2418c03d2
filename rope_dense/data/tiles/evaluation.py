"""Label rasters and depth maps of large images, from the blended scores of tiles.

Whole images out of the predictions for their tiles, joined as ``predict-large`` does.
"""

import copy
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from mmengine.evaluator import Evaluator
from mmengine.registry import EVALUATOR
from mmengine.structures import BaseDataElement, InstanceData, PixelData
from torch import Tensor

from ...utils.journal import Journal, damaged_error
from ..images.bands import drop_predictions_without_data, no_data
from ..mask_colours import ignored_label, label_type
from .dataset import TilePlace
from .detection import (
    ROTATED_IOU,
    UPRIGHT_IOU,
    detection_lines,
    suppress_duplicates,
)
from .image_file import LargeImage
from .plan import TileGrid, TilePredictor, finished_parts


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
    return (
        sample.pred_depth_map if 'pred_depth_map' in sample else sample.seg_logits
    ).data


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
        self,
        grid: TileGrid,
        folder: Path,
        num_scores: int,
        threshold: float | None,
        first: int = 0,
    ) -> None:
        self.grid, self.folder, self.threshold = grid, folder, threshold
        self.num_scores, self.first = num_scores, first
        self.dtype = value_type(num_scores, threshold)
        self.no_data = 0 if self.dtype == np.float32 else ignored_label(num_scores)
        self.finished_rows = finished_parts(grid.tops, grid.height)
        self.finished_columns = finished_parts(grid.lefts, grid.width)
        self.shared = torch.empty(
            0
        )  # [K, tile_height, columns that a tile and the next cover]

    def blend(self, row: int, scores: Iterable[Tensor]) -> np.ndarray:
        """The labels [rows, width] above the next row of tiles.

        The row of tiles before has been blended, by this process or an earlier one. Scores [K,
        tile_height, tile_width] are of the tiles from left to right.
        """
        labels = np.empty((self.finished_rows[row], self.grid.width), self.dtype)
        for column, (left, tile_scores) in enumerate(
            zip(self.grid.lefts, scores, strict=True)
        ):
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
        return (
            scores[0] if self.threshold is None else (scores[0] > self.threshold).long()
        )

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


MIN_SCORE = 0.01  # of a box that counts in a test
THRESHOLD = 0.3  # of mmseg's heads with one score


class TileJoiner:
    """The data samples of images, from the samples of a ``TiledDataset``'s test in their order.

    Boxes, rotated boxes and masks (then run lengths) are joined by ``suppress_duplicates`` when the
    last tile of an image has come. Scores of segmentors are blended by ``ScoreBlender``: each tile
    gives a sample of the pixels that no later tile covers, with its part of the truth, so that
    figures that sum up pixels are of whole images. Parts of depth are put together, as its figures
    are means over images. Other samples stay as they are.
    """

    def __init__(self, min_score: float = MIN_SCORE) -> None:
        self.min_score, self.lines = min_score, list[dict]()
        self.first: BaseDataElement  # tile of an image
        self.folder: TemporaryDirectory
        self.blender: ScoreBlender
        self.maps: Tensor

    def join(self, samples: Iterable[BaseDataElement]) -> Iterator[BaseDataElement]:
        """Yield the samples that further tiles complete."""
        for sample in samples:
            place: TilePlace | None = sample.metainfo.get('place')
            drop_predictions_without_data(sample, sample.metainfo.get('no_data'))
            if place and 'pred_instances' in sample:
                if whole := self.add_boxes(sample, place):
                    yield whole
            elif place and 'pred_depth_map' in sample:
                yield from self.whole_depth(sample, place)
            elif place and 'seg_logits' in sample and 'pred_sem_seg' in sample:
                yield self.blended_part(sample, place)
            else:
                yield sample

    def add_boxes(
        self, sample: BaseDataElement, place: TilePlace
    ) -> BaseDataElement | None:
        """Keep the boxes of a tile; the sample of an image after its last tile."""
        if place.number == 0:
            self.first, self.lines = sample, []
        found = sample.pred_instances.cpu()
        found = found[found.scores >= self.min_score]
        self.lines += detection_lines(
            found, place.level, place.row, place.column, place.number, place.size
        )
        if not place.is_last:
            return None
        columns = found.bboxes.shape[1]
        key, merge_iou = ('rbox', ROTATED_IOU) if columns == 5 else ('box', UPRIGHT_IOU)
        lines, self.lines = suppress_duplicates(self.lines, merge_iou), []
        boxes = torch.tensor([line[key] for line in lines]).reshape(-1, columns)
        joined = InstanceData(bboxes=boxes)
        joined.scores = torch.tensor([line['score'] for line in lines])
        joined.labels = torch.tensor(
            [line['label'] for line in lines], dtype=torch.long
        )
        if 'masks' in found:
            counts = [line['mask']['counts'].encode() for line in lines]
            joined.masks = [dict(size=[*place.size], counts=text) for text in counts]
        whole = copy.copy(self.first)
        whole.pred_instances = joined
        whole.set_metainfo(dict(ori_shape=place.size))
        del whole.place, whole.no_data
        return whole

    def blend(self, sample: BaseDataElement, place: TilePlace) -> Tensor:
        """Labels, or depth, of blended scores [rows, columns] that no later tile covers."""
        scores = pixel_scores(sample)
        if place.number == 0:
            self.folder = TemporaryDirectory(prefix='tiles_')
            threshold = None if 'pred_depth_map' in sample else THRESHOLD
            self.blender = ScoreBlender(
                place.level.grid, Path(self.folder.name), len(scores), threshold
            )
        values = self.blender.blend_tile(place.row, place.column, scores)
        if place.is_last:
            self.folder.cleanup()
        if (missing := sample.metainfo['no_data']) is not None:
            rows, columns = values.shape
            values[torch.from_numpy(missing[:rows, :columns])] = self.blender.no_data
        return values

    def whole_depth(
        self, sample: BaseDataElement, place: TilePlace
    ) -> Iterator[BaseDataElement]:
        """Keep the depth of a tile, and yield the sample of an image after its last tile."""
        if place.number == 0:
            self.maps = torch.zeros(2, *place.size)  # predicted, true
        values, (top, left) = self.blend(sample, place), place.start
        rows, columns = values.shape
        part = self.maps[:, top : top + rows, left : left + columns]
        part[0], part[1] = values, sample.gt_depth_map.data[0, :rows, :columns]
        if place.is_last:
            whole = copy.copy(sample)
            whole.pred_depth_map = PixelData(data=self.maps[:1])
            whole.gt_depth_map = PixelData(data=self.maps[1:])
            yield whole

    def blended_part(
        self, sample: BaseDataElement, place: TilePlace
    ) -> BaseDataElement:
        """The pixels of a tile that no later tile covers, with labels of blended scores."""
        labels = self.blend(sample, place)
        part, (rows, columns) = copy.copy(sample), labels.shape
        del part.seg_logits
        part.pred_sem_seg = PixelData(data=labels[None])
        part.gt_sem_seg = PixelData(
            data=sample.gt_sem_seg.data[:, :rows, :columns].cpu()
        )
        return part


@EVALUATOR.register_module()
class TiledEvaluator(Evaluator):
    """mmengine's evaluator of images that a test predicts in tiles, see ``TileJoiner``."""

    def __init__(self, metrics: dict | Sequence[Any]) -> None:
        super().__init__(metrics)
        self.joiner = TileJoiner()

    def process(
        self, data_samples: Sequence[BaseDataElement], data_batch: Any = None
    ) -> None:
        """Give the metrics the images that these tiles complete."""
        for sample in self.joiner.join(data_samples):
            super().process([sample], data_batch)
