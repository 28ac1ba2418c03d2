"""Replacements of parts that cannot be traced at dynamic sizes.

Letters: B images, C channels, H x W places of a map, N tokens, L maps.
"""

from importlib.util import find_spec
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ..models.window_attention import averaging_matrix


def replace_parts(model: nn.Module) -> nn.Module:
    """``model`` with its parts of the types in ``parts()`` replaced, inner parts first."""
    replacements = parts()
    for name, child in model.named_children():
        child = replace_parts(child)
        for kind, replacement in replacements.items():
            if isinstance(child, kind):
                setattr(model, name, replacement(child))
    return model


def parts() -> dict[type, type[nn.Module]]:
    """From the types of parts to their replacements, with mmdet's if it is installed."""
    found: dict[type, type[nn.Module]] = {nn.AdaptiveAvgPool2d: MeanPool}
    if find_spec('mmdet'):
        from mmcv.ops import MultiScaleDeformableAttention
        from mmdet.models.layers import MSDeformAttnPixelDecoder

        from .deformable import MMCVDeformableAttention, PixelDecoder

        found[MultiScaleDeformableAttention] = MMCVDeformableAttention
        found[MSDeformAttnPixelDecoder] = PixelDecoder
    if find_spec('mmseg'):
        from mmseg.models.decode_heads.dpt_head import FeatureFusionBlock

        found[FeatureFusionBlock] = FeatureFusion
    return found


class FeatureFusion(nn.Module):
    """mmseg's ``FeatureFusionBlock`` of DPT without its comparison of sizes, which would be traced.

    A map of the right size is resized, too, which changes nothing. Checked in test_export_depth.py.
    """

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor, skip: Tensor | None = None) -> Tensor:
        """[B, C, H, W], and a finer map of about this size, to [B, C, 2 H, 2 W]."""
        block = self.block
        height, width = x.shape[2:]
        if skip is not None:
            size = (height, width)
            skip = F.interpolate(skip, size, mode='bilinear', align_corners=False)
            x = x + block.res_conv_unit1(skip)
        x = block.res_conv_unit2(x)
        size = (2 * height, 2 * width)
        x = F.interpolate(x, size, mode='bilinear', align_corners=block.align_corners)
        return block.project(x)


class MeanPool(nn.Module):
    """``nn.AdaptiveAvgPool2d`` as a product with weights for rows and one with weights for columns.

    Bin i of n along a side of S places is the mean of places floor(i S / n) to
    ceil((i + 1) S / n) - 1; where n is None, n = S. Checked against torch in test_export.py.
    """

    def __init__(self, pool: nn.AdaptiveAvgPool2d) -> None:
        super().__init__()
        size = pool.output_size
        self.bins = size if isinstance(size, tuple) else (size, size)

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, C, bins of rows, bins of columns]."""
        height, width = x.shape[2:]
        rows = averaging_matrix(height, self.bins[0] or height, x)
        columns = averaging_matrix(width, self.bins[1] or width, x)
        return rows @ x @ columns.T
