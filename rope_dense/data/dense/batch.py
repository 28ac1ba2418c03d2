"""Augmentation by the epoch: pipelines of images, and ``batch_augments`` of batches.

``batch_augments`` are of mmdet's ``DetDataPreprocessor``: images are normalised then, and boxes are
tensors in pixels of the batch. Random numbers are Python's, whose state ``ResumableTrainLoop`` sets
for each batch.

Letters: B images, H x W pixels, N objects.
"""

import random
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from mmcv.transforms import BaseTransform, Compose
from mmdet.structures import DetDataSample
from mmengine.logging import MessageHub
from mmengine.registry import MODELS, TRANSFORMS
from mmengine.structures import InstanceData
from torch import Tensor, nn

from ...utils.validation import refuse

Samples = list[DetDataSample]
Box = tuple[int, int, int, int]  # left, top, right, bottom in pixels
Stage = Sequence[int]  # first epoch, and the first epoch after it


def current_epoch() -> int:
    """The epoch that is trained, from 0; 0 outside of a training.

    ``ResumableTrainLoop`` sets it for each image, in the processes that load images too, and for
    each batch. mmengine's epoch-based loop sets it in the main process; its loading processes know
    it with ``persistent_workers=False``.
    """
    return int(MessageHub.get_current_instance().get_info('epoch') or 0)


@TRANSFORMS.register_module()
class StageByEpoch(BaseTransform):
    """One of several pipelines, by the epoch of the training (see ``current_epoch``).

    mmdet's ``PipelineSwitchHook`` replaces the pipeline of a data set in the main process, which
    the processes that load images do not see before they are started again.

    Args:
        starts: epochs, counted from 0, at which the second pipeline begins, the third, ...
        transforms: the pipelines, one more than ``starts``. An empty one changes nothing.
    """

    def __init__(
        self,
        starts: Sequence[int],
        transforms: Sequence[Sequence[dict]],
    ) -> None:
        if any(first >= second for first, second in pairwise(starts)):
            refuse('starts', starts, 'epochs in increasing order')
        if len(transforms) != len(starts) + 1:
            raise ValueError(
                f'transforms must be {len(starts) + 1} pipelines, one more than starts={starts}, '
                f'got {len(transforms)}'
            )
        self.starts = list(starts)
        self.pipelines = [Compose(list(pipeline)) for pipeline in transforms]

    def transform(self, results: dict) -> dict | None:
        epoch = current_epoch()
        return self.pipelines[bisect_right(self.starts, epoch)](results)


class PoolObject(NamedTuple):
    """An object of a batch that can be copied: its image, its box there, and the object."""

    image: int
    box: Box
    width: int
    height: int
    instance: InstanceData


@MODELS.register_module()
class MixUpCopyBlend(nn.Module):
    """Blend each image with the one before it, or with objects of the batch; or do neither.

    MixUp is tried first, as published: image i becomes beta x_i + (1 - beta) x_(i - 1) with the
    objects of both, beta uniform in ``ratio`` and the same for a batch. If it is not applied,
    CopyBlend puts up to ``num_objects`` objects of the batch at random places of each image, not of
    its padding, by the same sum over their boxes and a margin. The source chooses objects by the
    area of the annotation in the original image; here it is the area of the box in the batch. What
    is ignored in the other image is ignored in the blended one, which the source does not.

    Args:
        mixup_epochs, copyblend_epochs: the stages in which each is tried.
        min_area: square pixels that an object needs to be copied.
        margin: range of the margin, as shares of the sides of a box.
    """

    def __init__(
        self,
        mixup_prob: float = 0.5,
        mixup_epochs: Stage = (0, 0),
        copyblend_prob: float = 0.0,
        copyblend_epochs: Stage = (0, 0),
        ratio: Sequence[float] = (0.45, 0.55),
        min_area: float = 100.0,
        num_objects: int = 3,
        margin: Sequence[float] = (0.1, 0.25),
    ) -> None:
        super().__init__()
        self.mixup_prob = mixup_prob
        self.mixup_epochs = mixup_epochs
        self.copyblend_prob = copyblend_prob
        self.copyblend_epochs = copyblend_epochs
        self.ratio = ratio
        self.min_area = min_area
        self.num_objects = num_objects
        self.margin = margin

    def forward(self, images: Tensor, samples: Samples) -> tuple[Tensor, Samples]:
        """Images [B, 3, H, W] and their samples to the same, blended."""
        epoch = current_epoch()
        beta = random.uniform(*self.ratio)
        if epoch in range(*self.mixup_epochs) and random.random() < self.mixup_prob:
            return mix_up(images, samples, beta)
        is_stage = epoch in range(*self.copyblend_epochs)
        if is_stage and random.random() < self.copyblend_prob:
            return self.copy_blend(images, samples, beta)
        return images, samples

    def copy_blend(
        self,
        images: Tensor,
        samples: Samples,
        beta: float,
    ) -> tuple[Tensor, Samples]:
        """CopyBlend with a given beta; ValueError for masks, which would not be copied."""
        if any('masks' in sample.gt_instances for sample in samples):
            raise ValueError('copyblend_prob must be 0 for samples with masks')
        size = images.shape[2], images.shape[3]
        pool = self.pool_of(samples, size)
        blended = images.clone()
        ignored = [*map(ignored_objects, samples)]
        for index, sample in enumerate(samples):
            copies = [sample.gt_instances]
            skipped = [ignored[index]]
            rows, columns = sample.img_shape[:2]  # no padding
            fitting = [x for x in pool if x.width <= columns and x.height <= rows]
            for item in random.sample(fitting, min(self.num_objects, len(fitting))):
                left = random.randint(0, columns - item.width)
                top = random.randint(0, rows - item.height)
                place = (left, top, left + item.width, top + item.height)
                copied = item.instance.clone()
                copied.bboxes = item.instance.bboxes.new_tensor([place])
                copies.append(copied)
                box, place = self.with_margin(item.box, place, size)
                skipped.append(moved_objects(ignored[item.image], box, place))
                patch = images[item.image, :, box[1] : box[3], box[0] : box[2]]
                target = blended[index, :, place[1] : place[3], place[0] : place[2]]
                target.mul_(beta).add_(patch, alpha=1 - beta)
            sample.gt_instances = InstanceData.cat(copies)
            sample.ignored_instances = InstanceData.cat(skipped)
        return blended, samples

    def pool_of(self, samples: Samples, size: tuple[int, int]) -> list[PoolObject]:
        """The objects of a batch of images of a (height, width) that are large enough to copy."""
        pool = []
        for index, sample in enumerate(samples):
            found = sample.gt_instances
            for number, (x1, y1, x2, y2) in enumerate(found.bboxes.tolist()):
                left = int(min(max(x1, 0), size[1]))
                top = int(min(max(y1, 0), size[0]))
                right = int(min(max(x2, 0), size[1]))
                bottom = int(min(max(y2, 0), size[0]))
                width = right - left
                height = bottom - top
                is_large = (x2 - x1) * (y2 - y1) >= self.min_area
                if is_large and width > 0 and height > 0:
                    box = (left, top, right, bottom)
                    instance = found[number : number + 1]
                    pool.append(PoolObject(index, box, width, height, instance))
        return pool

    def with_margin(
        self,
        box: Box,
        place: Box,
        size: tuple[int, int],
    ) -> tuple[Box, Box]:
        """Both boxes with the same margins, as wide as both images have pixels there."""
        share = random.uniform(*self.margin)
        x = int((box[2] - box[0]) * share)
        y = int((box[3] - box[1]) * share)
        left = min(x, box[0], place[0])
        top = min(y, box[1], place[1])
        right = min(x, size[1] - box[2], size[1] - place[2])
        bottom = min(y, size[0] - box[3], size[0] - place[3])
        wider, taller = (
            (b[0] - left, b[1] - top, b[2] + right, b[3] + bottom) for b in (box, place)
        )
        return wider, taller


def mix_up(images: Tensor, samples: Samples, beta: float) -> tuple[Tensor, Samples]:
    """Each image blended with the one before it in the batch, and the objects of both."""
    mixed = torch.lerp(images.roll(1, 0), images, beta)
    given = [sample.gt_instances for sample in samples]
    ignored = [*map(ignored_objects, samples)]
    for index, sample in enumerate(samples):
        sample.gt_instances = InstanceData.cat([given[index], given[index - 1]])
        sample.ignored_instances = InstanceData.cat(
            [ignored[index], ignored[index - 1]]
        )
    return mixed, samples


def ignored_objects(sample: DetDataSample) -> InstanceData:
    """The boxes [N, 4] and classes [N] of what a sample ignores."""
    found = sample.get('ignored_instances')
    found = sample.gt_instances[:0] if found is None else found
    return InstanceData(bboxes=found.bboxes, labels=found.labels)


def moved_objects(objects: InstanceData, patch: Box, place: Box) -> InstanceData:
    """The parts of boxes [N, 4] that are in a patch, where the patch is copied to."""
    boxes = objects.bboxes
    left, top, right, bottom = patch
    near = boxes.new_tensor([left, top] * 2)
    inside = boxes.clamp(near, boxes.new_tensor([right, bottom] * 2))
    is_seen = (inside[:, 2:] > inside[:, :2]).all(1)
    moved = inside - near + boxes.new_tensor(place[:2] * 2)
    return InstanceData(bboxes=moved[is_seen], labels=objects.labels[is_seen])


@MODELS.register_module()
class MultiScaleBatch(nn.Module):
    """Resize a batch, with its aspect ratio, to a size drawn for it.

    The published setting for squares: every 32 pixels from 0.75 to 1.25 of ``base``, and ``base``
    itself ``repeat`` times, the nearest pixel. mmdet's ``BatchSyncRandomResize`` interpolates, has
    no such weight for ``base``, and loses the aspect ratio.

    Args:
        base: the side that stands for a factor of 1, in pixels.
        epochs: the stage in which batches are resized.
        divisor: of the new sides.
    """

    def __init__(
        self,
        base: int = 640,
        repeat: int = 1,
        epochs: Stage = (0, 0),
        divisor: int = 32,
    ) -> None:
        super().__init__()
        self.base = base
        self.epochs = epochs
        self.divisor = divisor
        low = int(base * 0.75 / divisor) * divisor
        high = int(base * 1.25 / divisor) * divisor
        steps = range((base - low) // divisor)
        self.sizes = [low + step * divisor for step in steps]
        self.sizes += [base] * repeat
        self.sizes += [high - step * divisor for step in steps]

    def forward(self, images: Tensor, samples: Samples) -> tuple[Tensor, Samples]:
        """Images [B, 3, H, W] and their samples to the same at another size."""
        if current_epoch() not in range(*self.epochs):
            return images, samples
        return self.resized(images, samples, random.choice(self.sizes) / self.base)

    def resized(
        self,
        images: Tensor,
        samples: Samples,
        factor: float,
    ) -> tuple[Tensor, Samples]:
        """The same with sides times ``factor``, rounded to multiples of ``divisor``."""
        height, width = images.shape[2:]
        new_height, new_width = (
            max(1, round(side * factor / self.divisor)) * self.divisor
            for side in (height, width)
        )
        new = (new_height, new_width)
        if new == (height, width):
            return images, samples
        images = F.interpolate(images, size=new)  # the nearest pixel
        taller = new_height / height
        wider = new_width / width
        scale = torch.tensor([wider, taller, wider, taller], device=images.device)
        for sample in samples:
            for instances in (sample.gt_instances, sample.get('ignored_instances')):
                if instances is not None:
                    instances.bboxes = instances.bboxes * scale
            if 'masks' in sample.gt_instances:
                sample.gt_instances.masks = sample.gt_instances.masks.resize(new)
            if 'ground_distance' in sample:
                distance = sample.ground_distance / (taller * wider) ** 0.5
                sample.set_metainfo(dict(ground_distance=distance))
            rows, columns = sample.img_shape
            about = dict(
                batch_input_shape=new,
                pad_shape=new,
                img_shape=(round(rows * taller), round(columns * wider)),
            )
            sample.set_metainfo(about)
        return images, samples
