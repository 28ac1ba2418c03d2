"""Maps of strides 8, 16 and 32 from those of a ViT.

Letters: B images, C channels of the ViT, H x W token grid.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from mmengine.model import BaseModule
from mmengine.registry import MODELS
from torch import Tensor, nn

from ...utils.validation import check_integer
from .blocks import BN, ConvNorm
from .layers import resize


@MODELS.register_module()
class SpatialTuningAdapter(BaseModule):
    """DEIMv2's: fine detail from a few convolutions on the image, meaning from the ViT.

    Convolutions of stride 2 take the image to strides 8, 16 and 32. Each of three maps of the ViT
    is resized (bilinear) to one of these, and a 1 x 1 convolution takes both together. Sides of an
    image need not be multiples of 32, nor patches 16 pixels. Huang et al., "Real-Time Object
    Detection Meets DINOv3", 2025. Checked against transformers' ``Deimv2SpatialTuningAdapter`` in
    tests/models/deim/test_detector.py.

    Args:
        in_channels: C.
        stem_channels: of the first convolution; the others have 2, 4 and 4 times as many.
        out_channels: of the outputs.
        norm_cfg: in mmcv's form.
        init_cfg: mmengine initialisation.
    """

    def __init__(
        self,
        in_channels: int,
        stem_channels: int,
        out_channels: int,
        norm_cfg: dict = BN,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        check_integer('in_channels', in_channels, 1)
        stem = check_integer('stem_channels', stem_channels, 1)
        check_integer('out_channels', out_channels, 1)
        widths = (2 * stem, 4 * stem, 4 * stem)
        self.stem = ConvNorm(3, stem, 3, stride=2, act='GELU', norm_cfg=norm_cfg)
        self.downs = nn.ModuleList(
            ConvNorm(before, after, 3, stride=2, norm_cfg=norm_cfg)
            for before, after in zip((stem, *widths), widths, strict=False)
        )
        self.fusions = nn.ModuleList(
            ConvNorm(in_channels + width, out_channels, 1, norm_cfg=norm_cfg) for width in widths
        )

    def forward(self, maps: Sequence[Tensor], image: Tensor) -> tuple[Tensor, ...]:
        """Three maps, of any sizes, and their images [B, 3, height, width] to three maps.

        Raises:
            ValueError: not three maps.
        """
        if len(maps) != 3:
            raise ValueError(
                f'SpatialTuningAdapter takes three maps, got {len(maps)}: set out_indices of the '
                'backbone to three blocks'
            )
        x = F.max_pool2d(self.stem(image), 3, stride=2, padding=1)
        outs: list[Tensor] = []
        for down, fusion, tokens in zip(self.downs, self.fusions, maps, strict=True):
            x = down(F.gelu(x) if outs else x)
            outs.append(fusion(torch.cat([resize(tokens, x.shape[2:]), x], 1)))
        return tuple(outs)


@MODELS.register_module()
class MeanMapPyramid(BaseModule):
    """ECDet's: the mean of the maps of the ViT at twice, once and half their size.

    They are resized (bilinear); a 1 x 1 convolution and a norm follow. Liu et al., "EdgeCrafter:
    Compact ViTs for Edge Dense Prediction via Task-Specialized Distillation", 2026. Checked
    against torch operators in tests/models/deim/test_detector.py.

    Args:
        in_channels: C.
        out_channels: of the outputs. None is C, and only the smallest map is convolved, as in the
            source's small models.
        norm_cfg: in mmcv's form.
        init_cfg: mmengine initialisation.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        norm_cfg: dict = BN,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        check_integer('in_channels', in_channels, 1)
        number = 1 if out_channels is None else 3
        out_channels = check_integer('out_channels', out_channels or in_channels, 1)
        self.projections = nn.ModuleList(
            ConvNorm(in_channels, out_channels, 1, norm_cfg=norm_cfg) for _ in range(number)
        )

    def forward(self, maps: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Maps [B, C, H, W] to three maps; the last has (H + 1) // 2 rows."""
        x = torch.stack(list(maps)).mean(0)
        height, width = x.shape[2:]
        sizes = (2 * height, 2 * width), (height, width), ((height + 1) // 2, (width + 1) // 2)
        outs = [resize(x, size) for size in sizes]
        first = len(outs) - len(self.projections)
        projected = [
            project(out) for project, out in zip(self.projections, outs[first:], strict=True)
        ]
        return (*outs[:first], *projected)
