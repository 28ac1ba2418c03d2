"""Attention of the encoder and the decoder.

Letters: B images, N tokens or queries, Q queries, C channels, h heads, D = C / h, P points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

OFFSET_SCALE = 0.5  # of the points of deformable attention, relative to the size of a box


class SelfAttention(nn.Module):
    """Attention with position embeddings that are added to queries and keys, not to values.

    It is that of ``torch.nn.MultiheadAttention``, with its initialisation; queries and keys come
    from one product, and nothing of N x N is in memory. Checked against it in
    tests/models/deim/test_deim_attention.py.

    Args:
        channels: C.
        num_heads: h.
    """

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.in_proj = nn.Linear(channels, 3 * channels)  # queries, keys, values
        self.out_proj = nn.Linear(channels, channels)
        nn.init.xavier_uniform_(self.in_proj.weight)
        for linear in (self.in_proj, self.out_proj):
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor, positions: Tensor, mask: Tensor | None = None) -> Tensor:
        """Tokens [B, N, C] to tokens.

        Args:
            x: [B, N, C].
            positions: [B or 1, N, C].
            mask: [N, N], true where a token (row) attends to another (column).
        """
        split = 2 * x.shape[-1]
        weight, bias = self.in_proj.weight, self.in_proj.bias
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

    def __init__(self, channels: int, num_heads: int, num_points: Sequence[int]) -> None:
        super().__init__()
        self.num_heads, self.num_points = num_heads, list(num_points)
        total = sum(num_points)
        self.sampling_offsets = nn.Linear(channels, num_heads * total * 2)
        self.attention_weights = nn.Linear(channels, num_heads * total)
        scale = [OFFSET_SCALE / number for number in num_points for _ in range(number)]
        self.register_buffer('point_scale', torch.tensor(scale)[:, None], persistent=False)
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

    def forward(self, query: Tensor, boxes: Tensor, values: Sequence[Tensor]) -> Tensor:
        """Queries [B, Q, C] with boxes [B, Q, 4] to [B, Q, C].

        Args:
            query: [B, Q, C].
            boxes: (cx, cy, w, h), float32.
            values: [B h, D, H, W] of each map, float32.
        """
        heads = self.num_heads
        offsets = self.sampling_offsets(query).unflatten(-1, (heads, -1, 2))  # [B, Q, h, P, 2]
        centre, size = (2 * boxes)[:, :, None, None].chunk(2, -1)  # for a grid from -1 to 1
        grid = (centre - 1) + offsets * self.point_scale * size
        grid = grid.transpose(1, 2).flatten(0, 1)  # [B h, Q, P, 2]
        samples = [
            F.grid_sample(value, points, align_corners=False)
            for value, points in zip(values, grid.split(self.num_points, 2), strict=True)
        ]  # [B h, D, Q, P] each
        weights = self.attention_weights(query).unflatten(-1, (heads, -1)).softmax(-1)
        weights = weights.transpose(1, 2).flatten(0, 1)[:, None]  # [B h, 1, Q, P]
        out = (torch.cat(samples, -1) * weights).sum(-1)  # [B h, D, Q]
        return out.unflatten(0, (-1, heads)).flatten(1, 2).transpose(1, 2).to(query.dtype)
