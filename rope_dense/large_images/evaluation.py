"""Whole images out of the predictions for their tiles, joined as ``predict-large`` does."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from mmengine.evaluator import Evaluator
from mmengine.registry import EVALUATOR
from mmengine.structures import BaseDataElement, InstanceData, PixelData

from .dataset import Place
from .detection import ROTATED_IOU, UPRIGHT_IOU, detection_lines, suppress_duplicates
from .segmentation import ScoreBlender

MIN_SCORE = 0.01  # of a box that counts in a test


class TileJoiner:
    """The data samples of images, from the samples of a ``TiledDataset``'s test in their order.

    Boxes, rotated boxes and masks are joined by ``suppress_duplicates`` when the last tile of an
    image has come. Scores of segmentors are blended by ``ScoreBlender``, and each tile gives a
    sample of the pixels that no later tile covers: with its part of the truth, so that figures that
    sum up pixels are of whole images. Depth is not joined: each tile is an image of its own.

    Args:
        min_score, merge_iou: see ``detect`` and ``suppress_duplicates``; None for 0.5, and 0.1 for
            rotated boxes.
    """

    def __init__(self, min_score: float = MIN_SCORE, merge_iou: float | None = None) -> None:
        self.min_score, self.merge_iou = min_score, merge_iou
        self.lines = list[dict]()
        self.first: BaseDataElement | None = None  # tile of the image
        self.folder: TemporaryDirectory | None = None
        self.blender: ScoreBlender | None = None

    def joined(self, samples: Iterable[BaseDataElement]) -> Iterator[BaseDataElement]:
        """Yield the samples that further tiles complete."""
        for sample in samples:
            if (place := sample.metainfo.get('place')) is None:
                yield sample
            elif 'pred_instances' in sample:
                yield from self.add_boxes(sample, place)
            elif 'seg_logits' in sample and 'pred_sem_seg' in sample:
                yield self.blended(sample, place)
            else:
                yield sample

    def add_boxes(self, sample: BaseDataElement, place: Place) -> Iterator[BaseDataElement]:
        """Keep the boxes of a tile; yield the sample of an image after its last tile."""
        if place.number == 0:
            self.first, self.lines = sample, []
        found = sample.pred_instances.cpu()
        found = found[found.scores >= self.min_score]
        where = place.level, place.row, place.column, place.number, place.size
        self.lines += detection_lines(found, *where)
        if not place.is_last:
            return
        assert self.first is not None, 'tiles come in order'
        whole = copy.copy(self.first)
        whole.pred_instances = self.instances(found)
        whole.set_metainfo(dict(ori_shape=place.size))
        self.first, self.lines = None, []
        yield whole

    def instances(self, like: InstanceData) -> InstanceData:
        """The objects of an image, in the form of a tile's."""
        columns = like.bboxes.shape[1]
        merge_iou = ROTATED_IOU if columns == 5 else UPRIGHT_IOU
        merge_iou = merge_iou if self.merge_iou is None else self.merge_iou
        lines = suppress_duplicates(self.lines, merge_iou)
        boxes = [line['rbox' if columns == 5 else 'box'] for line in lines]
        found = InstanceData(bboxes=torch.tensor(boxes).reshape(-1, columns))
        found.scores = torch.tensor([line['score'] for line in lines])
        found.labels = torch.tensor([line['label'] for line in lines], dtype=torch.long)
        if 'masks' in like:
            size = list(self.first.metainfo['place'].size) if self.first else []
            counts = [line['mask']['counts'].encode() for line in lines]
            found.masks = [dict(size=size, counts=text) for text in counts]
        return found

    def blended(self, sample: BaseDataElement, place: Place) -> BaseDataElement:
        """The pixels of a tile that no later tile covers, with labels of blended scores."""
        scores = sample.seg_logits.data
        if place.number == 0:
            self.folder = TemporaryDirectory(prefix='tiles_')
            threshold = sample.metainfo.get('threshold', 0.5)
            self.blender = ScoreBlender(
                place.level.grid, Path(self.folder.name), len(scores), threshold
            )
        assert self.blender is not None and self.folder is not None, 'tiles come in order'
        labels = self.blender.add(place.row, place.column, scores)
        part = copy.copy(sample)
        del part.seg_logits
        part.pred_sem_seg = PixelData(data=labels[None])
        rows, columns = labels.shape
        part.gt_sem_seg = PixelData(data=sample.gt_sem_seg.data[:, :rows, :columns].cpu())
        if place.is_last:
            self.folder.cleanup()
        return part


@EVALUATOR.register_module()
class TiledEvaluator(Evaluator):
    """mmengine's evaluator of images that a test predicts in tiles, see ``TileJoiner``.

    Args:
        metrics: see mmengine's ``Evaluator``.
        min_score, merge_iou: see ``TileJoiner``.
    """

    def __init__(
        self,
        metrics: dict | Sequence[Any],
        min_score: float = MIN_SCORE,
        merge_iou: float | None = None,
    ) -> None:
        super().__init__(metrics)
        self.joiner = TileJoiner(min_score, merge_iou)

    def process(self, data_samples: Sequence[BaseDataElement], data_batch: Any = None) -> None:
        """Give the metrics the images that these tiles complete."""
        for sample in self.joiner.joined(data_samples):
            super().process([sample], data_batch)
