"""The feature pyramid of a plain backbone.

Letters: B images, C channels, H x W grid of the only map of the backbone.
"""

from collections.abc import Sequence
from itertools import combinations

import torch
import torch.nn.functional as F
from mmengine.model import BaseModule
from mmengine.registry import MODELS
from torch import Tensor, nn

from ..utils.validation import checked_integer, refuse

SCALE_FACTORS = [(4, 2, 1, 0.5)[first:end] for first, end in combinations(range(5), 2)]


@MODELS.register_module(name=['PlainViTFPN', 'SimpleFPN'])
class PlainViTFPN(BaseModule):
    """Pyramid from one map, the simple feature pyramid of ViTDet.

    Each map of ``scale_factors`` has a branch: x4 is two transposed convolutions with a norm and a
    GELU between, x2 one transposed convolution, x1 the map itself, x0.5 max-pooling; then a 1 x 1
    and a 3 x 3 convolution without bias and a channel-wise LayerNorm after each. Every further map
    takes every second point of the one before. Sizes are detectron2's: with an odd H, x2, x1 and
    x0.5 have 2 H, H and H // 2 rows.

    Strides in pixels are the stride of the map over its factor. After patches of 16 pixels, the
    defaults give 8, 16, 32 and 64, as DINO-ViTDet in detrex has them, and
    ``scale_factors=(4, 2, 1, 0.5), num_outs=5`` 4, 8, 16, 32 and 64, as ViTDet's Mask R-CNN and
    other heads made for an FPN. Method: Li et al., "Exploring Plain Vision Transformer Backbones
    for Object Detection" (ECCV 2022). Checked against plain torch operators in
    tests/models/test_plain_vit_fpn.py, and against detectron2's SimpleFeaturePyramid in
    tests/models/test_detectron2.py.

    Args:
        in_channels: C of the input map; a multiple of 4 for x4, of 2 for x2.
        out_channels: channels of all outputs.
        scale_factors: sizes of the maps with a branch relative to the input: neighbours among 4, 2,
            1 and 0.5, in this order.
        num_outs: maps in all.
        init_cfg: mmengine initialisation.

    Raises:
        ValueError: arguments that do not fit each other.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int = 256,
        scale_factors: Sequence[float] = (2, 1, 0.5),
        num_outs: int = 4,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        if tuple(scale_factors) not in SCALE_FACTORS:
            allowed = 'neighbours among 4, 2, 1 and 0.5, in this order'
            refuse('scale_factors', scale_factors, allowed)
        self.num_outs = checked_integer('num_outs', num_outs, len(scale_factors))
        self.branches = nn.ModuleList()
        for factor in scale_factors:
            channels = in_channels // max(int(factor), 1)
            branch = nn.Sequential(
                resampling(factor, in_channels),
                nn.Conv2d(channels, out_channels, 1, bias=False),
                LayerNorm2d(out_channels),
                nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
                LayerNorm2d(out_channels),
            )
            self.branches.append(branch)

    def forward(self, maps: tuple[Tensor]) -> tuple[Tensor, ...]:
        """A 1-tuple of [B, C, H, W] to ``num_outs`` maps of ``out_channels``, contiguous.

        mmcv's RoIAlign and RoIAlignRotated read memory in the order of a contiguous map, whatever
        the strides are; a LayerNorm over channels leaves other strides.
        """
        (x,) = maps
        outs = [branch(x).contiguous() for branch in self.branches]
        while len(outs) < self.num_outs:
            outs.append(F.max_pool2d(outs[-1], kernel_size=1, stride=2))
        return tuple(outs)


def resampling(factor: float, channels: int) -> nn.Module:
    """[B, C, H, W] to ``factor`` times the size, with C / ``factor`` channels where it grows."""
    if factor == 4:
        return nn.Sequential(
            resampling(2, channels),
            LayerNorm2d(channels // 2),
            nn.GELU(),
            resampling(2, channels // 2),
        )
    if factor == 2:
        return nn.ConvTranspose2d(channels, channels // 2, kernel_size=2, stride=2)
    return nn.Identity() if factor == 1 else nn.MaxPool2d(2)


@MODELS.register_module('ChannelLayerNorm')
class LayerNorm2d(nn.Module):
    """LayerNorm over the channels of [B, C, H, W].

    Heads of mmdet take it as ``norm_cfg=dict(type='ChannelLayerNorm', eps=1e-6)``; the default of
    mmcv there is 1e-5.
    """

    def __init__(self, channels: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 2, 3, 1)  # [B, H, W, C]
        x = F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)
