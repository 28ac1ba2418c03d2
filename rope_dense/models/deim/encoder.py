"""From the maps of a backbone to the maps of the detector: the encoder, and pyramids for a ViT.

Letters: B images, C channels, H x W map.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from mmcv.cnn import build_activation_layer
from mmengine.model import BaseModule
from mmengine.registry import MODELS
from torch import Tensor, nn

from ...backbones.layers import sines_and_cosines, to_map
from ...rope import Coordinates
from ...utils.memo import memo
from ...utils.sizes import Size
from ..maps import Maps, size_of
from .layers import BN, ConvNorm, ELANBlock, SelfAttention, resize_map


@MODELS.register_module()
class DEIMEncoder(BaseModule):
    """The hybrid encoder of RT-DETR as DEIMv2 and ECDet have it.

    The tokens of the smallest map attend to each other. Each map then gets the next smaller one
    (nearest neighbour), and after that the next larger one (a depth-wise convolution of stride 2),
    added to it, with an ``ELANBlock`` after each sum. Maps may have any sizes where each has half
    the rows and columns of the one before, rounded up. Zhao et al., "DETRs Beat YOLOs on Real-time
    Object Detection" (CVPR 2024). Checked against transformers' ``Deimv2HybridEncoder`` in
    tests/models/deim/test_detector.py. (The source orders positions by columns, which is
    right for square maps only; transformers and this class order them by rows, as the tokens.)

    Args:
        in_channels: of each map, large to small. A 1 x 1 convolution changes what is not C.
        embed_dims: C, a multiple of 4 and of ``num_heads``.
        feedforward_channels: of the MLP after the attention.
        num_blocks: RepVGG blocks of a CSP block: 3 times the published depth multiplier, rounded.
        expansion: channels of the CSP blocks, relative to C / 2.
        num_heads: of the attention.
        act: activation of the MLP, 'GELU' (DEIMv2) or 'SiLU' (ECDet).
        norm_cfg: of the convolutions, in mmcv's form.
        init_cfg: mmengine initialisation.

    Raises:
        ValueError: arguments that do not fit each other.
    """

    def __init__(
        self,
        in_channels: Sequence[int],
        embed_dims: int,
        feedforward_channels: int,
        num_blocks: int,
        expansion: float,
        num_heads: int = 8,
        act: str = 'GELU',
        norm_cfg: dict = BN,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        self.projections = nn.ModuleList(
            nn.Identity()
            if number == embed_dims
            else ConvNorm(number, embed_dims, 1, norm_cfg=norm_cfg)
            for number in in_channels
        )
        self.attention = AttentionLayer(
            embed_dims, num_heads, feedforward_channels, act
        )
        steps = range(len(in_channels) - 1)
        self.laterals = nn.ModuleList(
            ConvNorm(embed_dims, embed_dims, 1, norm_cfg=norm_cfg) for _ in steps
        )
        self.top_down = nn.ModuleList()
        self.bottom_up = nn.ModuleList()
        for blocks in (self.top_down, self.bottom_up):
            for _ in steps:
                block = ELANBlock(embed_dims, expansion, num_blocks, norm_cfg)
                blocks.append(block)
        self.downs = nn.ModuleList()
        for _ in steps:
            mix = ConvNorm(embed_dims, embed_dims, 1, norm_cfg=norm_cfg)
            shrink = ConvNorm(
                embed_dims,
                embed_dims,
                3,
                stride=2,
                groups=embed_dims,
                norm_cfg=norm_cfg,
            )
            self.downs.append(nn.Sequential(mix, shrink))

    def forward(self, maps: Maps) -> tuple[Tensor, ...]:
        """Maps, large to small, to maps [B, C, H, W] of the same sizes."""
        pairs = zip(self.projections, maps, strict=True)
        *others, last = [project(x) for project, x in pairs]
        pyramid = [self.attend(last)]
        others.reverse()
        steps = zip(others, self.laterals, self.top_down, strict=True)
        for x, lateral, block in steps:
            pyramid[-1] = lateral(pyramid[-1])
            larger = F.interpolate(pyramid[-1], list(x.shape[2:]), mode='nearest')
            pyramid.append(block(larger + x))
        outs = [pyramid.pop()]
        for down, block in zip(self.downs, self.bottom_up, strict=True):
            outs.append(block(down(outs[-1]) + pyramid.pop()))
        return tuple(outs)

    def attend(self, x: Tensor) -> Tensor:
        """Let the tokens of a map [B, C, H, W] attend to each other."""
        size = size_of(x)
        positions = sine_positions(size, x.shape[1], device=x.device).to(x.dtype)
        tokens = x.flatten(2).transpose(1, 2)
        return to_map(self.attention(tokens, positions), size)


class AttentionLayer(nn.Module):
    """Attention and an MLP, each with a residual connection and a norm after it.

    mmdet's ``DetrTransformerEncoderLayer`` computes the same, with the weights of attention as an
    N x N tensor.
    """

    def __init__(
        self,
        channels: int,
        num_heads: int,
        hidden: int,
        act: str,
    ) -> None:
        super().__init__()
        self.self_attn = SelfAttention(channels, num_heads)
        self.norm1 = nn.LayerNorm(channels)
        self.linear1 = nn.Linear(channels, hidden)
        self.activate = build_activation_layer(dict(type=act))
        self.linear2 = nn.Linear(hidden, channels)
        self.norm2 = nn.LayerNorm(channels)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Tokens [B, N, C] and position embeddings [1, N, C] to tokens."""
        x = self.norm1(x + self.self_attn(x, positions))
        return self.norm2(x + self.linear2(self.activate(self.linear1(x))))


@memo
def sine_positions(
    grid: Size,
    channels: int,
    *,
    device: torch.device,
) -> Tensor:
    """Sinusoidal position embedding [1, H W, C]: sines and cosines of the row, then the column."""
    positions = Coordinates().positions(*grid, device=device)
    table = sines_and_cosines(positions, channels)  # [N, (x, y), C / 4, (sin, cos)]
    return table.flip(1).transpose(2, 3).flatten(1)[None]


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
        image_channels: of the image.
    """

    def __init__(
        self,
        in_channels: int,
        stem_channels: int,
        out_channels: int,
        norm_cfg: dict = BN,
        init_cfg: dict | None = None,
        image_channels: int = 3,
    ) -> None:
        super().__init__(init_cfg)
        widths = (
            stem_channels,
            2 * stem_channels,
            4 * stem_channels,
            4 * stem_channels,
        )
        self.stem = ConvNorm(
            image_channels, stem_channels, 3, stride=2, act='GELU', norm_cfg=norm_cfg
        )
        self.downs = nn.ModuleList(
            ConvNorm(before, after, 3, stride=2, norm_cfg=norm_cfg)
            for before, after in pairwise(widths)
        )
        self.fusions = nn.ModuleList(
            ConvNorm(in_channels + width, out_channels, 1, norm_cfg=norm_cfg)
            for width in widths[1:]
        )

    def forward(self, maps: Maps, image: Tensor) -> tuple[Tensor, ...]:
        """Three maps of any sizes and images [B, image_channels, height, width] to three maps."""
        x = F.max_pool2d(self.stem(image), 3, stride=2, padding=1)
        outs: list[Tensor] = []
        for down, fusion, tokens in zip(self.downs, self.fusions, maps, strict=True):
            x = down(F.gelu(x) if outs else x)
            resized = resize_map(tokens, x.shape[2:])
            outs.append(fusion(torch.cat([resized, x], 1)))
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
        number = 1 if out_channels is None else 3
        self.projections = nn.ModuleList(
            ConvNorm(in_channels, out_channels or in_channels, 1, norm_cfg=norm_cfg)
            for _ in range(number)
        )

    def forward(self, maps: Maps) -> tuple[Tensor, ...]:
        """Maps [B, C, H, W] to three maps; the last has (H + 1) // 2 rows."""
        x = torch.stack(list(maps)).mean(0)
        height, width = x.shape[2:]
        sizes = (
            (2 * height, 2 * width),
            (height, width),
            ((height + 1) // 2, (width + 1) // 2),
        )
        outs = [resize_map(x, size) for size in sizes]
        first = len(outs) - len(self.projections)
        for index, project in enumerate(self.projections, first):
            outs[index] = project(outs[index])
        return tuple(outs)
