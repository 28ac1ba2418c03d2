"""Small layers of the decoder and its branches, and resizing of maps.

Letters: B images, C channels, H x W map.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Norm = Literal['rms', 'layer']
FFN = Literal['swiglu', 'mlp']
PRIOR_BIAS = -math.log((1 - 0.01) / 0.01)


def mlp(
    in_channels: int, hidden: int, out_channels: int, num_layers: int, *, zero: bool = False
) -> nn.Sequential:
    """Linear layers with a SiLU between; with ``zero`` the output is 0 at first."""
    sizes = [in_channels, *[hidden] * (num_layers - 1), out_channels]
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.SiLU()]
    last = layers[-2]
    if zero:
        for param in last.parameters():
            nn.init.zeros_(param)
    return nn.Sequential(*layers[:-1])


def class_layer(channels: int, num_classes: int) -> nn.Linear:
    """The linear layer of class logits; probabilities are 0.01 at first."""
    linear = nn.Linear(channels, num_classes)
    nn.init.constant_(linear.bias, PRIOR_BIAS)
    return linear


def build_norm(norm: Norm, channels: int) -> nn.Module:
    """A norm of tokens: of their root mean square (DEIMv2), or a LayerNorm (ECDet)."""
    return RMSNorm(channels, eps=1e-6) if norm == 'rms' else nn.LayerNorm(channels)


class RMSNorm(nn.RMSNorm):
    """PyTorch's, in the precision of its weights under autocast too, as its LayerNorm is."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(self.weight.dtype))


class Gateway(nn.Module):
    """A gated sum of two inputs in place of a residual connection, and a norm."""

    def __init__(self, channels: int, norm: Norm) -> None:
        super().__init__()
        self.gate = nn.Linear(2 * channels, 2 * channels)
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)
        self.norm = build_norm(norm, channels)

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

    def __init__(self, kind: FFN, channels: int, hidden: int) -> None:
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


def resize(x: Tensor, size: Sequence[int]) -> Tensor:
    """A map [B, C, H, W] to another (H, W), bilinear."""
    return F.interpolate(x, list(size), mode='bilinear', align_corners=False)
