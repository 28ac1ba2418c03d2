"""Segmentors and depth estimators, on whole images.

Letters: B images, H x W pixels, K classes.
"""

from __future__ import annotations

import torch
from mmseg.models.decode_heads import Mask2FormerHead
from mmseg.models.segmentors import DepthEstimator, EncoderDecoder
from torch import Tensor

from ..models.eomt.segmentor import EoMTSegmentor
from ..utils.sizes import ImageSize
from .client import Frame
from .graphs import Graph, Outputs, check_methods, crop_maps
from .parts import FeatureFusion


class MapSize(tuple):
    """(height, width), symbolic while tracing, where mmengine would make a deep copy of it."""

    def __deepcopy__(self, memo: dict) -> MapSize:
        return self


class SegmentorGraph(Graph):
    """mmseg's ``EncoderDecoder``: uint8 images to logits [B, K, H, W] and labels [B, H, W].

    Whole images whatever ``test_cfg.mode`` is, padded as the data preprocessor pads them. Logits
    are those that mmseg calls ``seg_logits``, on the pixels of the input.
    """

    task = 'segmentation'
    outputs: tuple[str, ...] = ('logits', 'labels')

    def __init__(self, model: EncoderDecoder, dtype: torch.dtype) -> None:
        self.check(model)
        super().__init__(model, dtype)
        self.num_classes = model.num_classes if self.task == 'segmentation' else None
        if isinstance(model.decode_head, Mask2FormerHead):
            # Queries attend to logits above 0: one that is 0 but for rounding changes a query.
            self.tolerance = 0.1
        if self.model.with_auxiliary_head:
            del self.model.auxiliary_head  # for training only
        self.cast_backbone()
        self.generic = self.generic_size()

    def check(self, model: EncoderDecoder) -> None:
        """Raise ValueError for a model that cannot be exported."""
        check_methods(model, EncoderDecoder, 'postprocess_result')
        if model.out_channels < 2:
            raise ValueError(
                f'decode_head must have 2 classes or more, got {model.out_channels}'
            )

    def generic_size(self) -> ImageSize:
        """The smallest generic image with 2 x 2 places of the coarsest map (DPT: 3 x 3)."""
        side = 2 * max(*self.generic, self.divisor)
        maps = self.model.extract_feat(torch.zeros(1, self.channels, side, side))
        maps = [x[0] if isinstance(x, tuple) else x for x in maps]  # with prefix tokens
        coarsest = max(-(-side // min(x.shape[2:])) for x in maps)
        places = 2
        if any(isinstance(part, FeatureFusion) for part in self.model.modules()):
            places = 3  # DPT halves the map
        least = places * coarsest
        height, width = self.generic
        return max(height, least), max(width, least)

    def results(self, x: Tensor, frame: Frame) -> Outputs:
        logits = frame.maps(self.predict(x, frame.size))
        return logits, logits.argmax(1)

    def predict(self, x: Tensor, size: ImageSize) -> Tensor:
        """The map that the model decodes, [B, K, H, W]."""
        padded = MapSize(x.shape[2:])
        meta = dict(img_shape=padded, pad_shape=padded)
        logits = self.model.encode_decode(x, [meta])
        return crop_maps(logits, size) if self.divisor > 1 else logits


class DepthGraph(SegmentorGraph):
    """mmseg's ``DepthEstimator``: uint8 images to depth [B, 1, H, W], float32, in metres."""

    task = 'depth'
    outputs = ('depth',)

    def check(self, model: DepthEstimator) -> None:
        """Raise ValueError for a model that cannot be exported."""
        check_methods(model, DepthEstimator, 'postprocess_result')

    def results(self, x: Tensor, frame: Frame) -> Outputs:
        return (frame.maps(self.predict(x, frame.size)),)


class EoMTSegmentorGraph(SegmentorGraph):
    """``EoMTSegmentor``, whose head runs the last blocks of the backbone."""

    def cast_backbone(self) -> None:
        self.model.backbone.to(self.dtype)

    def generic_size(self) -> ImageSize:
        return self.generic


# The first that a model is one of counts.
GRAPHS = {
    EoMTSegmentor: EoMTSegmentorGraph,
    DepthEstimator: DepthGraph,
    EncoderDecoder: SegmentorGraph,
}
