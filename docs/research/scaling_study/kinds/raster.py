"""Rotary embedding of the tokens in one dimension, row after row.

Letters: h heads, D channels and P channel pairs of a head, H x W token grid. Checked in
tests/research/test_linear_attention.py against the written-out formula.
"""

from __future__ import annotations

import torch
from mmengine.registry import MODELS
from torch import Tensor, nn

from rope_dense.rope import Coordinates, Rotary, RotaryEmbedding
from rope_dense.rope.frequencies import axis_frequencies
from rope_dense.rope.rotation import PairLayout
from rope_dense.utils.sizes import Size
from rope_dense.utils.validation import check_choice, checked_number


@MODELS.register_module()
class RasterRoPE(RotaryEmbedding):
    """One-dimensional RoPE of the tokens in row-major order. Experimental.

    angle = F (x + W y), W the columns of the whole map, also in windows. F = theta ** (-t / P),
    t = 0 .. P - 1, P = D / 2.

    Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding" (2021), section 3.2.

    Args:
        head_dim, num_heads, pair_layout: see ``RotaryEmbedding``; ``head_dim`` is even.
        theta: see ``GridRoPE``.
        learned: make the frequencies of each head parameters that start at these values.
    """

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        theta: float = 10000.0,
        learned: bool = False,
        pair_layout: PairLayout = 'interleaved',
    ) -> None:
        super().__init__(head_dim, num_heads, pair_layout)
        self.theta = checked_number('theta', theta, above=0)
        check_choice('learned', learned, (True, False))
        if head_dim % 2:
            raise ValueError(f'head_dim must be a multiple of 2, got {head_dim}')
        self.freqs: nn.Parameter | None = None
        if learned:
            start = axis_frequencies(head_dim, theta, num_axes=1)
            self.freqs = nn.Parameter(start.repeat(num_heads, 1))  # [h, P]

    def forward(self, x: Tensor, grid: Size, window_size: Size | None = None) -> Rotary:
        dtype = torch.promote_types(x.dtype, torch.float32)
        x_y = Coordinates().positions(
            *(window_size or grid), device=x.device, dtype=dtype
        )
        positions = x_y[:, 0] + grid[1] * x_y[:, 1]
        freqs: Tensor | None = self.freqs
        if freqs is None:
            freqs = axis_frequencies(
                self.head_dim, self.theta, device=x.device, num_axes=1
            )
        return Rotary(positions[:, None, None] * freqs.to(dtype), self.pair_layout)
