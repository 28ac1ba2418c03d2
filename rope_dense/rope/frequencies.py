"""Frequencies of rotary embeddings, and the modules that own them.

Letters: D channels of a head, h heads, P = D / 2 channel pairs, L blocks that share one module.
Frequencies are in radians per patch. Formulas: Heo et al., "Rotary Position Embedding for Vision
Transformer" (ECCV 2024), section 3; checked against timm's independent modules in
tests/test_frequencies.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import torch
from torch import Tensor, nn

from .grid import grid_positions
from .rotation import PairLayout, Rotation, axis_angles, unit_complex
from .scaling import RopeScaling


class RotaryEmbedding(nn.Module):
    """Base of all rotary embeddings: from frequencies and a grid to one ``Rotation`` per block.

    A new embedding defines ``frequencies``. Backbones build it with ``head_dim``, ``num_heads`` and
    ``depth`` added to the arguments of its config.

    Args:
        head_dim: D, channels of a head; a multiple of 4.
        num_heads: h.
        depth: L, number of blocks served.
        theta: base of the geometric series of frequencies; larger means lower frequencies.
        pair_layout: ``'adjacent'`` or ``'split'``, see ``Rotation``.
    """

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        depth: int,
        theta: float,
        pair_layout: PairLayout = 'adjacent',
    ) -> None:
        super().__init__()
        if head_dim % 4:
            raise ValueError(
                f'head_dim must be a multiple of 4 (two axes, two channels a pair), got {head_dim}'
            )
        if theta <= 0:
            raise ValueError(f'theta must be positive, got {theta}')
        if pair_layout not in get_args(PairLayout):
            raise ValueError(
                f'pair_layout must be one of {get_args(PairLayout)}, got {pair_layout!r}'
            )
        self.head_dim, self.num_heads, self.depth = head_dim, num_heads, depth
        self.theta, self.pair_layout = theta, pair_layout

    def frequencies(self, blocks: Sequence[int], device: torch.device) -> Tensor:
        """[2, len(blocks), h or 1, P], or [2, 1, 1, P] when all blocks share their frequencies."""
        raise NotImplementedError

    def forward(
        self,
        blocks: Sequence[int],
        *,
        height: int,
        width: int,
        device: torch.device,
        num_prefix_tokens: int = 0,
        scaling: RopeScaling | None = None,
    ) -> list[Rotation]:
        """One rotation per block, for ``height`` x ``width`` tokens after the prefix tokens.

        Angles are float32 whatever the dtype of the model (float64 parameters keep float64).
        ``scaling`` adapts the frequencies to grids larger than that of pre-training.
        """
        freqs = self.frequencies(blocks, device)
        freqs = freqs.to(torch.promote_types(freqs.dtype, torch.float32))
        score_factor = 1.0
        if scaling is not None:
            freqs = scaling.scale(freqs, height=height, width=width)
            score_factor = scaling.score_factor(height=height, width=width)
        x, y = grid_positions(height=height, width=width, device=device, dtype=freqs.dtype)
        x_angles, y_angles = axis_angles(freqs.detach(), x, y)
        parts = zip(freqs.unbind(1), unit_complex(x_angles), unit_complex(y_angles), strict=True)
        rotations = [
            Rotation(
                of_block, x, y, columns, rows, self.pair_layout, num_prefix_tokens, score_factor
            )
            for of_block, columns, rows in parts
        ]
        if len(rotations) == len(blocks):
            return rotations
        (shared,) = rotations
        return [replace(shared, shared_table=shared.table())] * len(blocks)

    def extra_repr(self) -> str:
        return f'theta={self.theta}, pair_layout={self.pair_layout}'


class AxialRoPE(RotaryEmbedding):
    """Half of the pairs turn with x, half with y; all heads and blocks alike unless ``learned``.

    Args:
        head_dim, num_heads, depth, pair_layout: see ``RotaryEmbedding``.
        theta: 100 for ViT, 50 for Swin in the paper.
        learned: make the frequencies of every block, head and axis parameters that start at the
            axial values (the paper's appendix A).
    """

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        depth: int,
        theta: float = 100.0,
        learned: bool = False,
        pair_layout: PairLayout = 'adjacent',
    ) -> None:
        super().__init__(head_dim, num_heads, depth, theta, pair_layout)
        self.learned = learned
        if learned:
            series = axis_frequencies(head_dim, theta)
            self.freqs = nn.Parameter(series.repeat(2, depth, num_heads, 1))  # [2, L, h, P / 2]

    def frequencies(self, blocks: Sequence[int], device: torch.device) -> Tensor:
        if self.learned:
            x, y = self.freqs[:, list(blocks)]  # [len(blocks), h, P / 2] each
        else:
            x = y = axis_frequencies(self.head_dim, self.theta, device=device)[None, None]
        zeros = torch.zeros_like(x)
        return torch.stack([torch.cat([x, zeros], -1), torch.cat([zeros, y], -1)])


class MixedRoPE(RotaryEmbedding):
    """Every pair turns with a learned mixture of x and y, of its own in each block and head.

    Args:
        head_dim, num_heads, depth, pair_layout: see ``RotaryEmbedding``.
        theta: 10 in the paper; shapes the initial values only.
    """

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        depth: int,
        theta: float = 10.0,
        pair_layout: PairLayout = 'adjacent',
    ) -> None:
        super().__init__(head_dim, num_heads, depth, theta, pair_layout)
        freqs = [mixed_frequencies(head_dim, num_heads, theta) for _ in range(depth)]
        self.freqs = nn.Parameter(torch.stack(freqs, 1))  # [2, L, h, P]

    def frequencies(self, blocks: Sequence[int], device: torch.device) -> Tensor:
        return self.freqs[:, list(blocks)]


def axis_frequencies(head_dim: int, theta: float, device: torch.device | None = None) -> Tensor:
    """The geometric series ``theta ** (-4 k / D)``, k = 0 .. D / 4 - 1: [P / 2], float32."""
    exponents = torch.arange(0, head_dim, 4, device=device, dtype=torch.float32) / head_dim
    return theta**-exponents


def mixed_frequencies(head_dim: int, num_heads: int, theta: float) -> Tensor:
    """Initial mixed frequencies of one block: [2, h, P].

    The axial frequency vectors, the axes of each head turned by an angle drawn from U[0, 2 pi).
    """
    series = axis_frequencies(head_dim, theta)
    turn = 2 * math.pi * torch.rand(num_heads, 1)
    direction = torch.cat([turn, turn + math.pi / 2], -1).repeat_interleave(len(series), -1)
    return series.repeat(2) * torch.stack([direction.cos(), direction.sin()])
