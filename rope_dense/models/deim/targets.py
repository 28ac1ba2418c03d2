"""Annotations of a batch of images.

Letters: B images, Q queries, T boxes of all images, H x W image, M pairs, P points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from mmdet.structures.bbox import bbox_xyxy_to_cxcywh, get_box_tensor
from mmengine.structures import InstanceData
from torch import Tensor

from ...utils.sizes import ImageSize


class Targets(NamedTuple):
    """Annotations of all images, one image after the other.

    Attributes:
        labels: [T].
        boxes: [T, 4], (cx, cy, w, h) relative to the padded batch.
        counts: how many belong to each image.
        masks: [T, H, W], 0 or 1, relative to the padded batch as the boxes; None without any.
    """

    labels: Tensor
    boxes: Tensor
    counts: list[int]
    masks: Tensor | None = None

    @property
    def per_image(self) -> list[tuple[Tensor, Tensor]]:
        """Labels and boxes of each image."""
        parts = self.labels.split(self.counts), self.boxes.split(self.counts)
        return list(zip(*parts, strict=True))

    def sample_masks(self, index: Tensor, points: Tensor) -> Tensor:
        """Masks of annotations [M] at points [M, P, 2], (x, y) from 0 to 1: [M, P].

        The nearest pixels; masks are neither copied nor made float32 as a whole.
        """
        assert self.masks is not None
        height, width = self.masks.shape[1:]
        size = points.new_tensor([width, height])
        x, y = (points * size).long().minimum(size.long() - 1).unbind(-1)
        return self.masks[index[:, None], y, x].float()


@dataclass(frozen=True)
class Pairs:
    """Queries and the annotations that they are matched with.

    Attributes:
        queries: [M], among those of all images: image * Q + query.
        targets: [M], among those of all images.
        counts: how many belong to each image, in order.
    """

    queries: Tensor
    targets: Tensor
    counts: list[int]

    def __len__(self) -> int:
        """M."""
        return self.queries.shape[0]


def gather_targets(
    instances: Sequence[InstanceData], size: ImageSize, *, with_masks: bool = False
) -> Targets:
    """Targets from mmdet's instances, with boxes in pixels of images of ``size``.

    Raises:
        ValueError: masks that are not there, or of several sizes.
    """
    boxes = torch.cat([get_box_tensor(part.bboxes) for part in instances]).float()
    height, width = size
    factor = boxes.new_tensor([width, height, width, height])
    labels = torch.cat([part.labels for part in instances]).long()
    counts = [len(part) for part in instances]
    masks = gather_masks(instances, boxes.device) if with_masks else None
    return Targets(labels, bbox_xyxy_to_cxcywh(boxes / factor), counts, masks)


def gather_masks(instances: Sequence[InstanceData], device: torch.device) -> Tensor:
    """The masks [T, H, W] of mmdet's instances."""
    if not all('masks' in part for part in instances):
        raise ValueError(
            'annotations have no masks: set with_mask=True in LoadAnnotations, or leave out masks '
            'in the bbox_head'
        )
    masks = [part.masks.to_tensor(torch.uint8, device) for part in instances]
    sizes = {tuple(x.shape[1:]) for x in masks}
    if len(sizes) > 1:
        raise ValueError(
            f'masks of a batch must have one size, got {sorted(sizes)}: set pad_mask=True in the '
            'data_preprocessor'
        )
    return torch.cat(masks)
