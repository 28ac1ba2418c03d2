"""Segmentors and depth estimators, on whole images.

Letters: B images, H x W pixels, K classes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from mmseg.models.segmentors import DepthEstimator, EncoderDecoder
from torch import Tensor

from ..backbones.layers import padding_to_multiple
from ..models.eomt.segmentor import EoMTSegmentor
from .graphs import Graph, Preprocess, check_methods
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
    oblivious = False

    def __init__(self, model: EncoderDecoder, dtype: torch.dtype) -> None:
        self.check(model)
        super().__init__(model, dtype)
        settings = vars(model.data_preprocessor)
        padding = settings.get('test_cfg') or {}
        if padding.get('size'):
            raise ValueError(
                f'data_preprocessor.test_cfg must have a size_divisor and no size, got {padding}'
            )
        self.num_classes = model.num_classes if self.task == 'segmentation' else None
        self.preprocess = Preprocess(model.data_preprocessor)
        self.divisor = padding.get('size_divisor') or 1
        self.pad_value = settings.get('pad_val', 0)
        if self.model.with_auxiliary_head:
            del self.model.auxiliary_head  # for training only
        self.cast_backbone()
        self.least = self.smallest()

    def check(self, model: EncoderDecoder) -> None:
        """Raise ValueError for a model that cannot be exported."""
        check_methods(model, EncoderDecoder, 'postprocess_result')
        if model.out_channels < 2:
            raise ValueError(f'decode_head must have 2 classes or more, got {model.out_channels}')

    def smallest(self) -> tuple[int, int]:
        """The smallest image of the backbone with 2 x 2 places of the coarsest map (DPT: 3 x 3)."""
        side = 2 * max(*self.least, self.divisor)
        maps = self.model.extract_feat(torch.zeros(1, 3, side, side))
        maps = [x[0] if isinstance(x, tuple) else x for x in maps]  # with prefix tokens
        coarsest = max(-(-side // min(x.shape[2:])) for x in maps)
        places = 2
        if any(isinstance(part, FeatureFusion) for part in self.model.modules()):
            places = 3  # DPT halves the map
        height, width = (max(least, places * coarsest) for least in self.least)
        return height, width

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        logits = self.predict(image)
        return logits, logits.argmax(1)

    def predict(self, image: Tensor) -> Tensor:
        """The map that the model decodes, [B, K, H, W]."""
        height, width = image.shape[2:]
        x = self.preprocess(image)
        if self.divisor > 1:
            bottom, right = (padding_to_multiple(side, self.divisor) for side in (height, width))
            x = F.pad(x, (0, right, 0, bottom), value=self.pad_value)
        size = MapSize(x.shape[2:])
        logits = self.model.encode_decode(x, [dict(img_shape=size, pad_shape=size)])
        if self.divisor > 1:
            # Not a slice: whether it is the whole of a padded map would be settled while tracing.
            rows, columns = torch.arange(height), torch.arange(width)
            logits = logits.index_select(2, rows).index_select(3, columns)
        return logits


class DepthGraph(SegmentorGraph):
    """mmseg's ``DepthEstimator``: uint8 images to depth [B, 1, H, W], float32, in metres."""

    task, outputs = 'depth', ('depth',)

    def check(self, model: DepthEstimator) -> None:
        """Raise ValueError for a model that cannot be exported."""
        check_methods(model, DepthEstimator, 'postprocess_result')

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        return (self.predict(image),)


class EoMTSegmentorGraph(SegmentorGraph):
    """``EoMTSegmentor``, whose head runs the last blocks of the backbone."""

    def cast_backbone(self) -> None:
        self.model.backbone.to(self.dtype)

    def smallest(self) -> tuple[int, int]:
        return self.least


# The first that a model is one of counts.
GRAPHS = {
    EoMTSegmentor: EoMTSegmentorGraph,
    DepthEstimator: DepthGraph,
    EncoderDecoder: SegmentorGraph,
}
