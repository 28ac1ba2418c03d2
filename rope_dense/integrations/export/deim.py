"""DEIM, without what only training needs.

Letters: B images, H x W pixels, M detections of an image, h x w mask.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...models.deim.detector import DEIM
from .detector import smallest_with_tokens
from .graphs import Graph, Preprocess


class DEIMGraph(Graph):
    """``DEIM``: uint8 images to scores [B, M], boxes [B, M, 4] and labels [B, M].

    They are as in ``DetectorGraph``. A model with masks also has their logits [B, M, h, w], at a
    quarter of H x W; an instance is where they are positive. Layers after ``eval_idx``, what
    earlier layers predict for the losses, and denoising are left out. Batch norms become part of
    their convolutions, and the two convolutions of a RepVGG block one.
    """

    task = 'detection'
    num_classes: int

    def __init__(self, model: DEIM, dtype: torch.dtype) -> None:
        super().__init__(model, dtype)
        head = self.model.bbox_head
        self.outputs = ('scores', 'boxes', 'labels', *(['masks'] if head.mask_head else []))
        self.num_classes = head.num_classes
        self.preprocess = Preprocess(model.data_preprocessor)
        self.multiple = self.preprocess.divisor
        self.least = smallest_with_tokens(self, head.num_queries)
        self.model.deploy()
        self.cast_backbone()

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        height, width = image.shape[2:]
        maps = self.model.extract_feat(self.preprocess(image))
        scores, labels, boxes, *masks = self.model.bbox_head.predict_tensors(maps, (height, width))
        return scores, boxes, labels, *masks


GRAPHS = {DEIM: DEIMGraph}
