"""Whole images out of the predictions for their tiles: labels, depth and boxes.

``predict-large`` writes labels and depth by ``segment``, and a test of a ``TiledDataset`` joins its
samples by ``TiledEvaluator``; the scores of both are blended by ``ScoreBlender``.
"""

import copy
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import torch
from mmengine.evaluator import Evaluator
from mmengine.registry import EVALUATOR
from mmengine.structures import BaseDataElement, PixelData
from torch import Tensor

from ...utils.journal import Journal, damaged_error
from ..images.bands import drop_predictions_without_data, no_data
from ..mask_colours import ignored_label, label_type
from .detection import (
    ROTATED_IOU,
    UPRIGHT_IOU,
    TilePlace,
    detection_lines,
    instances_of,
    suppress_duplicates,
)
from .image_file import LargeImage
from .plan import TileGrid, TilePredictor, finished_parts

MIN_SCORE = 0.01  # of a box that counts in a test
THRESHOLD = 0.3  # of mmseg's heads with one score

PixelTask = Literal['semantic', 'depth']


def segment(
    image: LargeImage,
    grid: TileGrid,
    task: PixelTask,
    num_scores: int,
    threshold: float,
    predict: TilePredictor,
    journal: Journal,
    rows: range,
) -> None:
    """Add the label rows [rows, width] of an image to a journal, one row of tiles after the other.

    Pixels without data have ``ScoreBlender.no_data``. Rows of tiles above the first one that share
    pixels with it are predicted, too, but not added.

    Args:
        task, num_scores, threshold: see ``ScoreBlender``.
        predict: a segmentor, or a model of depth.
        rows: of tiles, one or more.
    """
    top = grid.tops[rows[0]]
    above = sum(start + grid.tile_height <= top for start in grid.tops)
    blender = ScoreBlender(
        grid,
        journal.folder,
        task,
        num_scores,
        threshold,
        above,
    )
    first = rows[journal.finished] if journal.finished else above
    for row in range(first, rows.stop):
        top = grid.tops[row]
        strip = image.read(top, top + grid.tile_height)
        scores = map(pixel_scores, predict(grid.tiles_of(strip)))
        labels = blender.blend(row, scores)
        missing = no_data(strip[: len(labels)])
        if missing is not None:
            labels[missing] = blender.no_data
        if row in rows:
            journal.finish_step(labels.tobytes())
        blender.forget(row - 1)


@EVALUATOR.register_module()
class TiledEvaluator(Evaluator):
    """mmengine's evaluator of images that a test predicts in tiles, see ``TileJoiner``."""

    def __init__(self, metrics: dict | Sequence[Any]) -> None:
        super().__init__(metrics)
        self.joiner = TileJoiner()

    def process(
        self,
        data_samples: Sequence[BaseDataElement],
        data_batch: Any = None,
    ) -> None:
        """Give the metrics the images that these tiles complete."""
        for sample in self.joiner.join(data_samples):
            super().process([sample], data_batch)


class TileJoiner:
    """The data samples of images, from the samples of a ``TiledDataset``'s test in their order.

    Boxes, rotated boxes and masks (then run lengths) are joined by ``suppress_duplicates`` when the
    last tile of an image has come. Scores of segmentors are blended by ``ScoreBlender``: each tile
    gives a sample of the pixels that no later tile covers, with its part of the truth, so that
    figures that sum up pixels are of whole images. Parts of depth are put together, as its figures
    are means over images. Other samples stay as they are.
    """

    lines: list[dict]  # of an image so far
    first: BaseDataElement  # tile of an image
    folder: TemporaryDirectory
    blender: 'ScoreBlender'
    maps: Tensor

    def __init__(self, min_score: float = MIN_SCORE) -> None:
        self.min_score = min_score

    def join(self, samples: Iterable[BaseDataElement]) -> Iterator[BaseDataElement]:
        """Yield the samples that further tiles complete."""
        for sample in samples:
            place: TilePlace | None = sample.metainfo.get('place')
            drop_predictions_without_data(sample, sample.metainfo.get('no_data'))
            if place and 'pred_instances' in sample:
                yield from self.whole_boxes(sample, place)
            elif place and 'pred_depth_map' in sample:
                yield from self.whole_depth(sample, place)
            elif place and 'seg_logits' in sample and 'pred_sem_seg' in sample:
                yield self.blended_part(sample, place)
            else:
                yield sample

    def whole_boxes(
        self,
        sample: BaseDataElement,
        place: TilePlace,
    ) -> Iterator[BaseDataElement]:
        """Keep the boxes of a tile, and yield the sample of an image after its last tile."""
        if place.number == 0:
            self.first = sample
            self.lines = []
        found = sample.pred_instances.cpu()
        found = found[found.scores >= self.min_score]
        self.lines += detection_lines(found, place)
        if not place.is_last:
            return
        is_rotated = found.bboxes.shape[1] == 5
        merge_iou = ROTATED_IOU if is_rotated else UPRIGHT_IOU
        lines = suppress_duplicates(self.lines, merge_iou)
        self.lines = []
        joined = instances_of(lines, is_rotated)
        if 'masks' in found:
            counts = [line['mask']['counts'].encode() for line in lines]
            joined.masks = [dict(size=list(place.size), counts=text) for text in counts]
        whole = copy.copy(self.first)
        whole.pred_instances = joined
        whole.set_metainfo(dict(ori_shape=place.size))
        del whole.place, whole.no_data
        yield whole

    def blend(self, sample: BaseDataElement, place: TilePlace) -> Tensor:
        """Labels, or depth, of blended scores [rows, columns] that no later tile covers."""
        scores = pixel_scores(sample)
        if place.number == 0:
            self.folder = TemporaryDirectory(prefix='tiles_')
            self.blender = ScoreBlender(
                place.level.grid,
                Path(self.folder.name),
                'depth' if 'pred_depth_map' in sample else 'semantic',
                len(scores),
                THRESHOLD,
            )
        values = self.blender.blend_tile(place.row, place.column, scores)
        if place.is_last:
            self.folder.cleanup()
        missing = sample.metainfo['no_data']
        if missing is not None:
            rows, columns = values.shape
            values[torch.from_numpy(missing[:rows, :columns])] = self.blender.no_data
        return values

    def whole_depth(
        self,
        sample: BaseDataElement,
        place: TilePlace,
    ) -> Iterator[BaseDataElement]:
        """Keep the depth of a tile, and yield the sample of an image after its last tile."""
        if place.number == 0:
            self.maps = torch.zeros(2, *place.size)  # predicted, true
        values = self.blend(sample, place)
        rows, columns = values.shape
        left, top, *_ = place.window
        part = self.maps[:, top : top + rows, left : left + columns]
        part[0] = values
        part[1] = sample.gt_depth_map.data[0, :rows, :columns]
        if place.is_last:
            whole = copy.copy(sample)
            whole.pred_depth_map = PixelData(data=self.maps[:1])
            whole.gt_depth_map = PixelData(data=self.maps[1:])
            yield whole

    def blended_part(
        self,
        sample: BaseDataElement,
        place: TilePlace,
    ) -> BaseDataElement:
        """The pixels of a tile that no later tile covers, with labels of blended scores."""
        labels = self.blend(sample, place)
        rows, columns = labels.shape
        truth = sample.gt_sem_seg.data[:, :rows, :columns].cpu()
        part = copy.copy(sample)
        del part.seg_logits
        part.pred_sem_seg = PixelData(data=labels[None])
        part.gt_sem_seg = PixelData(data=truth)
        return part


class ScoreBlender:
    """Labels from the weighted sum of the scores of all tiles that cover a pixel.

    Weights are from ``tile_weights``, along rows and columns; their sum is 1. In memory are
    the scores of one tile, and of the tile to its left where both overlap. Scores where a row
    of tiles overlaps the next one are in files of a folder meanwhile: (shared pixels) x scores x 4
    bytes.

    Args:
        folder: for these files.
        task: 'semantic' for labels; 'depth' for depth, which stays as it is.
        num_scores: K, of each pixel, 1 for depth. The label is the index of the largest; of one
            score whether it is above the threshold.
        threshold: of the labels of one score.
        first: row of tiles that is blended first.
    """

    def __init__(
        self,
        grid: TileGrid,
        folder: Path,
        task: PixelTask,
        num_scores: int,
        threshold: float,
        first: int = 0,
    ) -> None:
        self.grid = grid
        self.folder = folder
        self.task = task
        self.num_scores = num_scores
        self.threshold = threshold
        self.first = first
        self.dtype = value_type(task, num_scores)
        self.no_data = 0 if task == 'depth' else ignored_label(num_scores)
        self.finished_rows = finished_parts(grid.tops, grid.height)
        self.finished_columns = finished_parts(grid.lefts, grid.width)
        # [K, tile_height, columns that a tile and the next cover]
        self.shared = torch.empty(0)

    def blend(self, row: int, scores: Iterable[Tensor]) -> np.ndarray:
        """The labels [rows, width] above the next row of tiles.

        The row of tiles before has been blended, by this process or an earlier one. Scores [K,
        tile_height, tile_width] are of the tiles from left to right.
        """
        labels = np.empty((self.finished_rows[row], self.grid.width), self.dtype)
        places = zip(self.grid.lefts, scores, strict=True)
        for column, (left, tile_scores) in enumerate(places):
            part = self.blend_tile(row, column, tile_scores)
            labels[:, left : left + part.shape[1]] = part.numpy()
        return labels

    def blend_tile(self, row: int, column: int, scores: Tensor) -> Tensor:
        """The labels [rows, columns] of a tile that no later tile covers; on the CPU.

        Tiles come row by row, from left to right, with scores [K, tile_height, tile_width].
        """
        grid = self.grid
        rows = self.finished_rows[row]
        columns = self.finished_columns[column]
        weights = np.outer(grid.row_weights[row], grid.column_weights[column])
        total = scores * torch.from_numpy(weights).to(scores)
        if column > 0:
            total[:, :, : self.shared.shape[2]] += self.shared
        final = total[:, :, :columns]
        self.shared = total[:, :, columns:].clone()
        if row > self.first:
            above = self.read(row - 1, column).to(final)
            final[:, : above.shape[1]] += above
        if row < len(grid.tops) - 1:
            np.save(self.file(row, column), final[:, rows:].cpu().numpy())
        return self.labels_of(final[:, :rows]).cpu()

    def labels_of(self, scores: Tensor) -> Tensor:
        """Labels [H, W] of scores [K, H, W]."""
        if self.task == 'depth':
            return scores[0]
        if self.num_scores > 1:
            return scores.argmax(0)
        return (scores[0] > self.threshold).long()

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


def pixel_scores(sample: BaseDataElement) -> Tensor:
    """The scores of the pixels of a tile, or their depth [1, H, W]."""
    if 'pred_depth_map' in sample:
        return sample.pred_depth_map.data
    return sample.seg_logits.data


def value_type(task: PixelTask, num_scores: int) -> np.dtype:
    """The type of labels by their number of scores, or of depth."""
    return np.dtype(np.float32) if task == 'depth' else label_type(num_scores)
