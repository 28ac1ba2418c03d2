"""Layers of the encoder, the decoder and the pyramids.

Letters: B images, N tokens or queries, Q queries, C channels, h heads, D = C / h, P points, H x W
map.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from mmcv.cnn import ConvModule
from torch import Tensor, nn

from ...backbones.layers import RMSNorm
from ...operators.deformable_attention import sample_maps

Norm = Literal['rms', 'layer']
FFN = Literal['swiglu', 'mlp']
PRIOR_BIAS = -math.log((1 - 0.01) / 0.01)
BN = dict(type='BN')
# Of the points of deformable attention, relative to the size of a box.
OFFSET_SCALE = 0.5


class SelfAttention(nn.Module):
    """Attention with position embeddings that are added to queries and keys, not to values.

    ``torch.nn.MultiheadAttention`` computes the same and is initialised so; queries and keys come
    from one product, and nothing of N x N is in memory. Checked against it in
    tests/models/deim/test_deim_attention.py.
    """

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.in_proj = nn.Linear(channels, 3 * channels)  # queries, keys, values
        self.out_proj = nn.Linear(channels, channels)
        nn.init.xavier_uniform_(self.in_proj.weight)
        for linear in (self.in_proj, self.out_proj):
            nn.init.zeros_(linear.bias)

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Tokens [B, N, C] with positions [B or 1, N, C] to tokens.

        The mask [N, N] is true where a token (row) attends to another (column).
        """
        split = 2 * x.shape[-1]
        weight = self.in_proj.weight
        bias = self.in_proj.bias
        qk = F.linear(x + positions, weight[:split], bias[:split])
        v = F.linear(x, weight[split:], bias[split:])
        q, k = self.heads(qk, 2)
        (v,) = self.heads(v, 1)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # [B, h, N, D]
        return self.out_proj(out.transpose(1, 2).flatten(2))

    def heads(self, x: Tensor, number: int) -> tuple[Tensor, ...]:
        """[B, N, number C] to ``number`` times [B, h, N, D]."""
        return x.unflatten(-1, (number, self.num_heads, -1)).transpose(1, 3).unbind(2)


class DeformableAttention(nn.Module):
    """Weighted sum of the values at a few points in and around the box of each query.

    The points of a map are its own in number, which mmcv's ``MultiScaleDeformableAttention`` and
    its operator do not allow, and values are the maps themselves, without a projection. Offsets
    are relative to half the size of the box, and to the number of points of the map. As in D-FINE;
    checked against transformers' in tests/models/deim/test_deim_attention.py.

    Args:
        channels: C.
        num_heads: h.
        num_points: P of each map.
    """

    point_scale: Tensor

    def __init__(
        self,
        channels: int,
        num_heads: int,
        num_points: Sequence[int],
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.num_points = list(num_points)
        total = sum(num_points)
        self.sampling_offsets = nn.Linear(channels, num_heads * total * 2)
        self.attention_weights = nn.Linear(channels, num_heads * total)
        scale: list[float] = []
        for number in num_points:
            scale += [OFFSET_SCALE / number] * number
        scales = torch.tensor(scale)[:, None]
        self.register_buffer('point_scale', scales, persistent=False)
        self.init_points()

    def init_points(self) -> None:
        """Heads look in directions all around the box, and each point further than the last."""
        for linear in (self.sampling_offsets, self.attention_weights):
            nn.init.zeros_(linear.weight)
            nn.init.zeros_(linear.bias)
        angles = torch.arange(self.num_heads) * (2 * math.pi / self.num_heads)
        directions = torch.stack([angles.cos(), angles.sin()], -1)
        directions = directions / directions.abs().amax(-1, keepdim=True)  # [h, 2]
        steps = torch.cat([torch.arange(1.0, number + 1) for number in self.num_points])
        offsets = directions[:, None] * steps[:, None]  # [h, P, 2]
        with torch.no_grad():
            self.sampling_offsets.bias.copy_(offsets.flatten())

    def forward(
        self,
        query: Tensor,
        boxes: Tensor,
        values: Sequence[Tensor],
    ) -> Tensor:
        """Queries [B, Q, C] with boxes [B, Q, 4] (cx, cy, w, h) to [B, Q, C].

        Values [B h, D, H, W] of each map and boxes are float32.
        """
        heads = self.num_heads
        offsets = self.sampling_offsets(query)
        offsets = offsets.unflatten(-1, (heads, -1, 2))  # [B, Q, h, P, 2]
        points = self.points(offsets, boxes)
        weights = self.attention_weights(query).unflatten(-1, (heads, -1)).softmax(-1)
        return sample_maps(values, points, self.num_points, weights).to(query.dtype)

    def points(self, offsets: Tensor, boxes: Tensor) -> Tensor:
        """Points [B, Q, h, P, 2] on a grid from -1 to 1, at offsets from the centres of boxes."""
        centre, size = (2 * boxes)[:, :, None, None].chunk(2, -1)
        return (centre - 1) + offsets * self.point_scale * size


def mlp(
    in_channels: int,
    hidden: int,
    out_channels: int,
    num_layers: int,
    *,
    zero: bool = False,
) -> nn.Sequential:
    """Linear layers with a SiLU between; with ``zero`` the output is 0 at first."""
    sizes = [in_channels, *[hidden] * (num_layers - 1), out_channels]
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.SiLU()]
    layers.pop()
    if zero:
        for param in layers[-1].parameters():
            nn.init.zeros_(param)
    return nn.Sequential(*layers)


def class_layer(channels: int, num_classes: int) -> nn.Linear:
    """The linear layer of class logits; probabilities are 0.01 at first."""
    linear = nn.Linear(channels, num_classes)
    nn.init.constant_(linear.bias, PRIOR_BIAS)
    return linear


def token_norm(norm: Norm, channels: int) -> nn.Module:
    """A norm of tokens: of their root mean square (DEIMv2), or a LayerNorm (ECDet)."""
    return RMSNorm(channels, eps=1e-6) if norm == 'rms' else nn.LayerNorm(channels)


class Gateway(nn.Module):
    """A gated sum of two inputs in place of a residual connection, and a norm."""

    def __init__(self, channels: int, norm: Norm) -> None:
        super().__init__()
        self.gate = nn.Linear(2 * channels, 2 * channels)
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)
        self.norm = token_norm(norm, channels)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """[B, Q, C] twice to [B, Q, C]."""
        gate_x, gate_y = self.gate(torch.cat([x, y], -1)).sigmoid().chunk(2, -1)
        return self.norm(gate_x * x + gate_y * y)


class FeedForward(nn.Module):
    """The MLP of a decoder layer.

    Args:
        kind: 'swiglu' (DEIMv2) gates one half of the hidden channels by SiLU of the other, 'mlp'
            (ECDet) has a SiLU.
        channels: C.
        hidden: channels of the first layer, both halves together.
    """

    def __init__(
        self,
        kind: FFN,
        channels: int,
        hidden: int,
    ) -> None:
        super().__init__()
        self.is_gated = kind == 'swiglu'
        width = hidden // 2 if self.is_gated else hidden
        self.in_proj = nn.Linear(channels, 2 * width if self.is_gated else width)
        self.out_proj = nn.Linear(width, channels)
        if self.is_gated:
            for linear in (self.in_proj, self.out_proj):
                nn.init.xavier_uniform_(linear.weight)
                nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., C] to [..., C]."""
        x = self.in_proj(x)
        if not self.is_gated:
            return self.out_proj(F.silu(x))
        gate, x = x.chunk(2, -1)
        return self.out_proj(F.silu(gate) * x)


def resize_map(x: Tensor, size: Sequence[int]) -> Tensor:
    """A map [B, C, H, W] to another (H, W), bilinear."""
    return F.interpolate(x, list(size), mode='bilinear', align_corners=False)


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
        *,
        norm_cfg: dict,
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
        large = self.conv3x3.conv
        small = self.conv1x1.conv
        large.weight += F.pad(small.weight, (1, 1, 1, 1))
        large.bias += small.bias
        self.conv1x1 = None


class CSPBlock(nn.Module):
    """Half of the channels of a 1 x 1 convolution, plus RepVGG blocks of the other half."""

    def __init__(
        self,
        in_channels: int,
        channels: int,
        num_blocks: int,
        norm_cfg: dict,
    ) -> None:
        super().__init__()
        self.split = ConvNorm(
            in_channels, 2 * channels, 1, act='SiLU', norm_cfg=norm_cfg
        )
        blocks = [RepConv(channels, norm_cfg) for _ in range(num_blocks)]
        self.blocks = nn.Sequential(*blocks)

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

    def __init__(
        self,
        channels: int,
        expansion: float,
        num_blocks: int,
        norm_cfg: dict,
    ) -> None:
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
