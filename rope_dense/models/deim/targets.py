"""Annotations of a batch of images.

Letters: B images, T boxes of all images.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """

    labels: Tensor
    boxes: Tensor
    counts: list[int]

    @property
    def per_image(self) -> list[tuple[Tensor, Tensor]]:
        """Labels and boxes of each image."""
        parts = self.labels.split(self.counts), self.boxes.split(self.counts)
        return list(zip(*parts, strict=True))


def gather_targets(instances: Sequence[InstanceData], size: ImageSize) -> Targets:
    """Targets from mmdet's instances, with boxes in pixels of images of ``size``."""
    boxes = torch.cat([get_box_tensor(part.bboxes) for part in instances]).float()
    height, width = size
    factor = boxes.new_tensor([width, height, width, height])
    labels = torch.cat([part.labels for part in instances]).long()
    return Targets(labels, bbox_xyxy_to_cxcywh(boxes / factor), [len(part) for part in instances])
