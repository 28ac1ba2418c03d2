"""Whole images out of the predictions for their tiles, joined as ``predict-large`` does."""

import copy
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from mmengine.evaluator import Evaluator
from mmengine.registry import EVALUATOR
from mmengine.structures import BaseDataElement, InstanceData, PixelData
from torch import Tensor

from ..datasets.images.bands import drop_predictions_without_data
from .dataset import TilePlace
from .detection import ROTATED_IOU, UPRIGHT_IOU, detection_lines, suppress_duplicates
from .segmentation import ScoreBlender, pixel_scores

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

    def add_boxes(self, sample: BaseDataElement, place: TilePlace) -> BaseDataElement | None:
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
        joined.labels = torch.tensor([line['label'] for line in lines], dtype=torch.long)
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

    def whole_depth(self, sample: BaseDataElement, place: TilePlace) -> Iterator[BaseDataElement]:
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

    def blended_part(self, sample: BaseDataElement, place: TilePlace) -> BaseDataElement:
        """The pixels of a tile that no later tile covers, with labels of blended scores."""
        labels = self.blend(sample, place)
        part, (rows, columns) = copy.copy(sample), labels.shape
        del part.seg_logits
        part.pred_sem_seg = PixelData(data=labels[None])
        part.gt_sem_seg = PixelData(data=sample.gt_sem_seg.data[:, :rows, :columns].cpu())
        return part


@EVALUATOR.register_module()
class TiledEvaluator(Evaluator):
    """mmengine's evaluator of images that a test predicts in tiles, see ``TileJoiner``."""

    def __init__(self, metrics: dict | Sequence[Any]) -> None:
        super().__init__(metrics)
        self.joiner = TileJoiner()

    def process(self, data_samples: Sequence[BaseDataElement], data_batch: Any = None) -> None:
        """Give the metrics the images that these tiles complete."""
        for sample in self.joiner.join(data_samples):
            super().process([sample], data_batch)
