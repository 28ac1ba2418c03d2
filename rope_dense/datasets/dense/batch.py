"""Augmentation of batches, as ``batch_augments`` of mmdet's ``DetDataPreprocessor``.

Images are normalised then, and boxes are tensors in pixels of the batch. Random numbers are
Python's, whose state ``ResumableTrainLoop`` sets for each batch.

Letters: B images, H x W pixels, N objects.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from mmdet.structures import DetDataSample
from mmengine.registry import MODELS
from mmengine.structures import InstanceData
from torch import Tensor, nn

from .stages import current_epoch

Samples = list[DetDataSample]
Box = tuple[int, int, int, int]  # left, top, right, bottom in pixels
Stage = Sequence[int]  # first epoch, and the first epoch after it


@MODELS.register_module()
class MixUpCopyBlend(nn.Module):
    """Blends each image with the one before it, or with objects of the batch; or does neither.

    MixUp is tried first, as published: image i becomes beta x_i + (1 - beta) x_(i - 1) with the
    objects of both, beta uniform in ``ratio`` and the same for a batch. If it is not applied,
    CopyBlend puts up to ``num_objects`` objects of the batch at random places of each image, not of
    its padding, by the same sum over their boxes and a margin.

    The source chooses objects by the area of the annotation in the original image; here it is the
    area of the box in the batch.

    Args:
        mixup_prob, mixup_epochs: probability, and the stage (first epoch, end) of MixUp.
        copyblend_prob, copyblend_epochs: the same of CopyBlend.
        ratio: range of beta.
        min_area: square pixels that an object needs to be copied.
        num_objects: of each image.
        margin: range of the margin, as shares of the sides of a box; None for no margin.
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
        margin: Sequence[float] | None = (0.1, 0.25),
    ) -> None:
        super().__init__()
        self.mixup_prob, self.copyblend_prob = mixup_prob, copyblend_prob
        self.mixup_epochs, self.copyblend_epochs = mixup_epochs, copyblend_epochs
        self.ratio, self.margin = ratio, margin
        self.min_area, self.num_objects = min_area, num_objects

    def forward(self, images: Tensor, samples: Samples) -> tuple[Tensor, Samples]:
        """Images [B, 3, H, W] and their samples to the same, blended."""
        epoch, beta = current_epoch(), random.uniform(*self.ratio)
        if is_within(epoch, self.mixup_epochs) and random.random() < self.mixup_prob:
            return mix_up(images, samples, beta)
        if is_within(epoch, self.copyblend_epochs) and random.random() < self.copyblend_prob:
            return self.copy_blend(images, samples, beta)
        return images, samples

    def copy_blend(self, images: Tensor, samples: Samples, beta: float) -> tuple[Tensor, Samples]:
        """CopyBlend with a given beta.

        Raises:
            ValueError: the samples have masks, which would not be copied.
        """
        if any('masks' in sample.gt_instances for sample in samples):
            raise ValueError('copyblend_prob must be 0 for samples with masks')
        size = images.shape[2], images.shape[3]
        pool = [
            (index, box, instances[place : place + 1])
            for index, instances in enumerate(sample.gt_instances for sample in samples)
            for place, sides in enumerate(instances.bboxes.tolist())
            if (sides[2] - sides[0]) * (sides[3] - sides[1]) >= self.min_area
            and (box := pixels_of(sides, size))[0] < box[2]
            and box[1] < box[3]
        ]
        blended = images.clone()
        for index, sample in enumerate(samples):
            copies, room = [sample.gt_instances], sample.img_shape[:2]  # without its padding
            fitting = [
                item
                for item in pool
                if item[1][2] - item[1][0] <= room[1] and item[1][3] - item[1][1] <= room[0]
            ]
            number = min(self.num_objects, len(fitting))
            for source, box, instance in random.sample(fitting, number):
                width, height = box[2] - box[0], box[3] - box[1]
                left, top = random.randint(0, room[1] - width), random.randint(0, room[0] - height)
                place = left, top, left + width, top + height
                copies.append(instance.clone())
                copies[-1].bboxes = instance.bboxes.new_tensor([place])
                box, place = self.with_margin(box, place, size)
                patch = images[source, :, box[1] : box[3], box[0] : box[2]]
                target = blended[index, :, place[1] : place[3], place[0] : place[2]]
                target.mul_(beta).add_(patch, alpha=1 - beta)
            sample.gt_instances = InstanceData.cat(copies)
        return blended, samples

    def with_margin(self, box: Box, place: Box, size: tuple[int, int]) -> tuple[Box, Box]:
        """Both boxes with the same margins, as wide as both images have pixels there."""
        if self.margin is None:
            return box, place
        share = random.uniform(*self.margin)
        x, y = (int((box[axis + 2] - box[axis]) * share) for axis in (0, 1))
        left, top = (min(m, box[i], place[i]) for i, m in enumerate((x, y)))
        right = min(x, size[1] - box[2], size[1] - place[2])
        bottom = min(y, size[0] - box[3], size[0] - place[3])
        wider, taller = (
            (b[0] - left, b[1] - top, b[2] + right, b[3] + bottom) for b in (box, place)
        )
        return wider, taller


def is_within(epoch: int, stage: Stage) -> bool:
    """Return True if an epoch belongs to a stage."""
    return stage[0] <= epoch < stage[1]


def pixels_of(box: Sequence[float], size: tuple[int, int]) -> Box:
    """A box in whole pixels, within an image of (height, width)."""
    height, width = size
    left, right = (int(min(max(x, 0), width)) for x in box[0::2])
    top, bottom = (int(min(max(y, 0), height)) for y in box[1::2])
    return left, top, right, bottom


def mix_up(images: Tensor, samples: Samples, beta: float) -> tuple[Tensor, Samples]:
    """Each image blended with the one before it in the batch, and the objects of both."""
    mixed = torch.lerp(images.roll(1, 0), images, beta)
    given = [sample.gt_instances for sample in samples]
    for index, sample in enumerate(samples):
        sample.gt_instances = InstanceData.cat([given[index], given[index - 1]])
    return mixed, samples


@MODELS.register_module()
class MultiScaleBatch(nn.Module):
    """Resizes a batch, with its aspect ratio, to a size drawn for it.

    The published setting for squares: every 32 pixels from 0.75 to 1.25 of ``base``, and ``base``
    itself ``repeat`` times, the nearest pixel. mmdet's ``BatchSyncRandomResize`` interpolates, has
    no such weight for ``base``, and loses the aspect ratio.

    Args:
        base: the side that stands for a factor of 1, in pixels.
        repeat: number of times that ``base`` is among the sizes.
        epochs: the stage (first epoch, end) in which batches are resized.
        divisor: of the new sides.
        interpolation: of ``torch.nn.functional.interpolate``, 'nearest' or 'bilinear'.
    """

    def __init__(
        self,
        base: int = 640,
        repeat: int = 1,
        epochs: Stage = (0, 0),
        divisor: int = 32,
        interpolation: str = 'nearest',
    ) -> None:
        super().__init__()
        self.base, self.epochs, self.divisor = base, epochs, divisor
        self.interpolation = interpolation
        low, high = (int(base * share / divisor) * divisor for share in (0.75, 1.25))
        number = (base - low) // divisor
        self.sizes = [low + step * divisor for step in range(number)]
        self.sizes += [base] * repeat
        self.sizes += [high - step * divisor for step in range(number)]

    def forward(self, images: Tensor, samples: Samples) -> tuple[Tensor, Samples]:
        """Images [B, 3, H, W] and their samples to the same at another size."""
        if not is_within(current_epoch(), self.epochs):
            return images, samples
        return self.resized(images, samples, random.choice(self.sizes) / self.base)

    def resized(self, images: Tensor, samples: Samples, factor: float) -> tuple[Tensor, Samples]:
        """The same with sides times ``factor``, rounded to multiples of ``divisor``."""
        old = images.shape[2], images.shape[3]
        new = tuple(max(1, round(side * factor / self.divisor)) * self.divisor for side in old)
        if new == old:
            return images, samples
        images = F.interpolate(images, size=new, mode=self.interpolation)
        factors = [after / before for after, before in zip(new, old, strict=True)]
        for sample in samples:
            for instances in (sample.gt_instances, sample.get('ignored_instances')):
                if instances is not None:
                    scale = instances.bboxes.new_tensor([*factors[::-1]] * 2)
                    instances.bboxes = instances.bboxes * scale
            if 'masks' in sample.gt_instances:
                sample.gt_instances.masks = sample.gt_instances.masks.resize(new)
            shape = tuple(round(s * f) for s, f in zip(sample.img_shape, factors, strict=True))
            sample.set_metainfo(dict(batch_input_shape=new, pad_shape=new, img_shape=shape))
        return images, samples
