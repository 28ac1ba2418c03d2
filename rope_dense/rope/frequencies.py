"""Frequencies of rotary embeddings, and the modules that own them.

Letters: D channels of a head, h heads, P = D / 2 channel pairs, L blocks that share one module.
Frequencies are in radians per unit of the coordinates, which is a patch unless said otherwise.
Formulas: Heo et al., "Rotary Position Embedding for Vision Transformer" (ECCV 2024), section 3;
checked against timm's independent modules in tests/test_frequencies.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from .grid import build_coordinates
from .rotation import PairLayout, Rotation, axis_angles, unit_complex
from .scaling import RopeScaling

Series = Literal['radians', 'periods', 'bands']
AxisOrder = Literal['xy', 'yx']


KEPT = 8  # grids whose rotations a fixed embedding keeps


class RotaryEmbedding(nn.Module):
    """Base of all rotary embeddings: from frequencies and a grid to one ``Rotation`` per block.

    A new embedding defines ``frequencies``. If these never change it may set ``fixed``, and its
    rotations are kept from call to call. Backbones build it with ``head_dim``, ``num_heads`` and
    ``depth`` added to the arguments of its config.

    Args:
        head_dim: D, channels of a head; a multiple of 4.
        num_heads: h.
        depth: L, number of blocks served.
        theta: base of the geometric series of frequencies; larger means lower frequencies.
        pair_layout: ``'adjacent'`` or ``'split'``, see ``Rotation``.
        coordinates: config of ``Coordinates``; by default the patch index.
    """

    fixed = False

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        depth: int,
        theta: float,
        pair_layout: PairLayout = 'adjacent',
        coordinates: dict | None = None,
    ) -> None:
        super().__init__()
        if head_dim % 4:
            raise ValueError(
                f'head_dim must be a multiple of 4 (two axes, two channels a pair), got {head_dim}'
            )
        if theta <= 0:
            raise ValueError(f'theta must be positive, got {theta}')
        check_choice('pair_layout', pair_layout, get_args(PairLayout))
        self.head_dim, self.num_heads, self.depth = head_dim, num_heads, depth
        self.theta, self.pair_layout = theta, pair_layout
        self.coordinates = build_coordinates(coordinates or {})
        self.kept: dict[str, list[Rotation]] = {}

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

        In training mode the coordinates are augmented, alike for all ``blocks``.
        Angles are float32 whatever the dtype of the model (float64 parameters keep float64).
        ``scaling`` adapts the frequencies to grids larger than that of pre-training.
        """
        if not len(blocks):
            return []
        arguments = (blocks, height, width, device, num_prefix_tokens, scaling)
        if not self.may_keep(device):
            return self.rotations(*arguments)
        key = repr(arguments)
        if key not in self.kept:
            while len(self.kept) >= KEPT:
                self.kept.pop(next(iter(self.kept)))  # the oldest
            with torch.inference_mode(False):  # or training could not use them later
                self.kept[key] = self.rotations(*arguments)
        return self.kept[key]

    def may_keep(self, device: torch.device) -> bool:
        """Whether rotations are the same in the next call, and consist of real tensors."""
        augmented = self.training and self.coordinates.random
        if not self.fixed or augmented or torch.compiler.is_compiling():
            return False
        return type(torch.empty(0, device=device)) is Tensor

    def rotations(
        self,
        blocks: Sequence[int],
        height: int,
        width: int,
        device: torch.device,
        num_prefix_tokens: int,
        scaling: RopeScaling | None,
    ) -> list[Rotation]:
        """See ``forward``."""
        freqs = self.frequencies(blocks, device)
        freqs = freqs.to(torch.promote_types(freqs.dtype, torch.float32))
        score_factor = 1.0
        if scaling is not None:
            freqs = scaling.scale(freqs, height=height, width=width)
            score_factor = scaling.score_factor(height=height, width=width)
        x, y = self.coordinates.positions(
            height=height, width=width, device=device, dtype=freqs.dtype, augment=self.training
        )
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
        return [replace(shared, shared=True)] * len(blocks)

    def extra_repr(self) -> str:
        return f'theta={self.theta}, pair_layout={self.pair_layout}, {self.coordinates}'


class AxialRoPE(RotaryEmbedding):
    """Half of the pairs turn with x, half with y; all heads and blocks alike unless ``learned``.

    Args:
        head_dim, num_heads, depth, pair_layout, coordinates: see ``RotaryEmbedding``.
        theta: 100 for ViT, 50 for Swin in the paper.
        learned: make the frequencies of every block, head and axis parameters that start at the
            axial values (the paper's appendix A).
        series: see ``axis_frequencies``.
        axes: 'xy' if the first half of the pairs turns with x, 'yx' if with y (EVA-02, DINOv3).
    """

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        depth: int,
        theta: float = 100.0,
        learned: bool = False,
        pair_layout: PairLayout = 'adjacent',
        coordinates: dict | None = None,
        series: Series = 'radians',
        axes: AxisOrder = 'xy',
    ) -> None:
        super().__init__(head_dim, num_heads, depth, theta, pair_layout, coordinates)
        check_choice('series', series, get_args(Series))
        check_choice('axes', axes, get_args(AxisOrder))
        self.learned, self.series, self.axes = learned, series, axes
        self.fixed = not learned
        if learned:
            start = axis_frequencies(head_dim, theta, series)
            self.freqs = nn.Parameter(start.repeat(2, depth, num_heads, 1))  # [2, L, h, P / 2]

    def frequencies(self, blocks: Sequence[int], device: torch.device) -> Tensor:
        if self.learned:
            x, y = self.freqs[:, list(blocks)]  # [len(blocks), h, P / 2] each
        else:
            x = y = axis_frequencies(self.head_dim, self.theta, self.series, device)[None, None]
        zeros = torch.zeros_like(x)
        if self.axes == 'yx':
            return torch.stack([torch.cat([zeros, x], -1), torch.cat([y, zeros], -1)])
        return torch.stack([torch.cat([x, zeros], -1), torch.cat([zeros, y], -1)])

    def extra_repr(self) -> str:
        return f'{super().extra_repr()}, series={self.series}, axes={self.axes}'


class MixedRoPE(RotaryEmbedding):
    """Every pair turns with a learned mixture of x and y, of its own in each block and head.

    Args:
        head_dim, num_heads, depth, pair_layout, coordinates: see ``RotaryEmbedding``.
        theta: 10 in the paper; shapes the initial values only.
    """

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        depth: int,
        theta: float = 10.0,
        pair_layout: PairLayout = 'adjacent',
        coordinates: dict | None = None,
    ) -> None:
        super().__init__(head_dim, num_heads, depth, theta, pair_layout, coordinates)
        freqs = [mixed_frequencies(head_dim, num_heads, theta) for _ in range(depth)]
        self.freqs = nn.Parameter(torch.stack(freqs, 1))  # [2, L, h, P]

    def frequencies(self, blocks: Sequence[int], device: torch.device) -> Tensor:
        return self.freqs[:, list(blocks)]


def axis_frequencies(
    head_dim: int, theta: float, series: Series = 'radians', device: torch.device | None = None
) -> Tensor:
    """The frequencies of one axis, k = 0 .. n - 1 with n = D / 4: [n], float32.

    ===========  ===================================================================================
    series       frequency
    ===========  ===================================================================================
    ``radians``  theta ** (-k / n) (Heo et al.; EVA-02 and Perception Encoder with theta = 10000)
    ``periods``  2 pi theta ** (-k / n): periods theta ** (k / n), for coordinates in [-1, 1]
                 (DINOv3 with theta = 100; the buffers of its first release are these in bfloat16)
    ``bands``    pi (1 + (theta / 2 - 1) k / (n - 1)), linear, for coordinates in [-1, 1]: the
                 highest has theta / 2 periods (EVA-02's code, ``pixel``; no released weights)
    ===========  ===================================================================================
    """
    if series == 'bands':
        return math.pi * torch.linspace(1, theta / 2, head_dim // 4, device=device)
    exponents = torch.arange(0, head_dim, 4, device=device, dtype=torch.float32) / head_dim
    geometric = theta**-exponents
    return 2 * math.pi * geometric if series == 'periods' else geometric


def mixed_frequencies(head_dim: int, num_heads: int, theta: float) -> Tensor:
    """Initial mixed frequencies of one block: [2, h, P].

    The axial frequency vectors, the axes of each head turned by an angle drawn from U[0, 2 pi).
    """
    series = axis_frequencies(head_dim, theta)
    turn = 2 * math.pi * torch.rand(num_heads, 1)
    direction = torch.cat([turn, turn + math.pi / 2], -1).repeat_interleave(len(series), -1)
    return series.repeat(2) * torch.stack([direction.cos(), direction.sin()])


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f'{name} must be one of {allowed}, got {value!r}')
