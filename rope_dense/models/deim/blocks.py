"""Convolutions of the encoder and of the pyramids.

Letters: B images, C channels, H x W map.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from mmcv.cnn import ConvModule
from torch import Tensor, nn

BN = dict(type='BN')


class ConvNorm(ConvModule):
    """mmcv's ``ConvModule`` of a convolution without bias, a norm and an activation.

    Weights begin as PyTorch's, as in the source, and not as mmcv's.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        groups: int = 1,
        act: str | None = None,
        norm_cfg: dict = BN,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding=kernel_size // 2,
            groups=groups,
            norm_cfg=norm_cfg,
            act_cfg=None if act is None else dict(type=act),
        )

    def init_weights(self) -> None:
        """Leave them as they are."""


class RepConv(nn.Module):
    """The sum of a 3 x 3 and a 1 x 1 convolution, then a SiLU: RepVGG's block.

    Ding et al., "RepVGG: Making VGG-style ConvNets Great Again" (CVPR 2021).
    """

    conv1x1: ConvNorm | None

    def __init__(self, channels: int, norm_cfg: dict) -> None:
        super().__init__()
        self.conv3x3 = ConvNorm(channels, channels, 3, norm_cfg=norm_cfg)
        self.conv1x1 = ConvNorm(channels, channels, 1, norm_cfg=norm_cfg)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv3x3(x)
        return F.silu(y if self.conv1x1 is None else y + self.conv1x1(x))

    @torch.no_grad()
    def merge(self) -> None:
        """Add the smaller convolution to the larger one, if both have their norms in them."""
        if self.conv1x1 is None or not isinstance(self.conv3x3.norm, nn.Identity):
            return
        large, small = self.conv3x3.conv, self.conv1x1.conv
        large.weight += F.pad(small.weight, (1, 1, 1, 1))
        large.bias += small.bias
        self.conv1x1 = None


class CSPBlock(nn.Module):
    """Half of the channels of a 1 x 1 convolution, plus RepVGG blocks of the other half."""

    def __init__(self, in_channels: int, channels: int, num_blocks: int, norm_cfg: dict) -> None:
        super().__init__()
        self.split = ConvNorm(in_channels, 2 * channels, 1, act='SiLU', norm_cfg=norm_cfg)
        self.blocks = nn.Sequential(*(RepConv(channels, norm_cfg) for _ in range(num_blocks)))

    def forward(self, x: Tensor) -> Tensor:
        x, y = self.split(x).chunk(2, 1)
        return x + self.blocks(y)


class ELANBlock(nn.Module):
    """Two CSP blocks in a row; their inputs and outputs are concatenated and merged.

    It is D-FINE's RepNCSPELAN without convolutions after the CSP blocks, as in DEIMv2 and ECDet.

    Args:
        channels: C of the input and the output.
        expansion: channels of the CSP blocks, relative to C / 2.
        num_blocks: RepVGG blocks in each of them.
        norm_cfg: in mmcv's form.
    """

    def __init__(self, channels: int, expansion: float, num_blocks: int, norm_cfg: dict) -> None:
        super().__init__()
        hidden = round(expansion * channels // 2)
        self.split = ConvNorm(channels, 2 * channels, 1, act='SiLU', norm_cfg=norm_cfg)
        self.csp = nn.ModuleList(
            CSPBlock(size, hidden, num_blocks, norm_cfg) for size in (channels, hidden)
        )
        merged = 2 * channels + 2 * hidden
        self.merge = ConvNorm(merged, channels, 1, act='SiLU', norm_cfg=norm_cfg)

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.split(x).chunk(2, 1))
        for block in self.csp:
            parts.append(block(parts[-1]))
        return self.merge(torch.cat(parts, 1))
