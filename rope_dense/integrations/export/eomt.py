"""EoMT, whose head runs the last blocks of the backbone.

Letters: B images, H x W pixels, Q queries, K classes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ...detectors import EoMTDetector
from .graphs import Graph, Preprocess, cast
from .segmentor import SegmentorGraph


class EoMTSegmentorGraph(SegmentorGraph):
    """``EoMTSegmentor``: as other segmentors."""

    def cast_backbone(self) -> None:
        cast(self.model.backbone, self.dtype)

    def smallest(self) -> tuple[int, int]:
        return self.least


class EoMTDetectorGraph(Graph):
    """``EoMTDetector``: uint8 images to class probabilities [B, Q, K + 1], the last of them for no
    object, and mask probabilities [B, Q, H, W] on the pixels of the input.

    What becomes instances or segments of these is left to the user.
    """

    task, outputs = 'masks', ('classes', 'masks')

    def __init__(self, model: EoMTDetector, dtype: torch.dtype) -> None:
        super().__init__(model, dtype)
        self.num_classes = model.num_classes
        self.preprocess = Preprocess(model.data_preprocessor)
        self.multiple = self.preprocess.divisor
        cast(self.model.backbone, dtype)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        predictions = self.model.extract_feat(self.preprocess(image))
        (classes,), (masks,) = self.model.panoptic_head(predictions)
        height, width = image.shape[2:]
        masks = F.interpolate(masks, size=(height, width), mode='bilinear', align_corners=False)
        return classes.softmax(-1), masks.sigmoid()
