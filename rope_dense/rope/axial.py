"""Rotary embeddings whose channel pairs rotate with x or with y.

Letters: D channels of a head, h heads, P rotated channel pairs of a head, K frequencies of an axis,
n tokens of the grid or of a window. Formulas: Heo et al. (ECCV 2024), section 3, and "Revisiting
Positional Information in Transformers in the Era of Fused Attention" ("fused-attention paper").
Checked against timm's modules in tests/rope/test_frequencies.py, against transformers' in
tests/checkpoints/test_mlcd.py, and against written-out formulas in tests/rope/test_log_axial.py.
"""

import math
from dataclasses import replace
from typing import Any, get_args

import torch
from torch import Tensor, nn

from ..utils.sizes import Size
from ..utils.validation import check_choice, checked_integer, checked_number
from .embeddings import GridRoPE
from .frequencies import (
    AXIS_ORDERS,
    AxialFrequencies,
    AxisOrder,
    Series,
    axial_frequencies,
)
from .rotation import PairLayout, Rotary


class AxialRoPE(GridRoPE):
    """Half of the pairs rotate with x, half with y.

    The fused-attention paper's "2D RoPE" is the one with ``axes='yx', pair_layout='half'``.

    Args:
        head_dim, num_heads, pair_layout, coordinates: see ``GridRoPE``.
        theta: 100 for ViT, 50 for Swin in the released code; the paper says 100 for both.
        learned: make the frequencies of each head and axis parameters that start at the axial
            values (the paper's appendix A).
        series: see ``axis_frequencies``.
        axes: 'xy' if the first half of the pairs rotates with x, 'yx' if with y (EVA-02, DINOv3).
        k_rope: the first D / k_rope channels of each head are rotated; ``head_dim`` is a multiple
            of 4 k_rope.
        shared: whether all heads have the same frequencies. Otherwise the h heads share out one
            series, h times as fine and over the same range: head i has its i-th, (i + h)-th,
            (i + 2 h)-th, ... frequencies.

    Raises:
        ValueError: a value that is not allowed, or that does not fit ``head_dim``.
    """

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        theta: float = 100.0,
        learned: bool = False,
        pair_layout: PairLayout = 'interleaved',
        coordinates: dict | None = None,
        series: Series = 'radians',
        axes: AxisOrder = 'xy',
        k_rope: int = 1,
        shared: bool = True,
    ) -> None:
        super().__init__(head_dim, num_heads, theta, pair_layout, coordinates)
        check_choice('learned', learned, (True, False))
        check_choice('shared', shared, (True, False))
        check_choice('series', series, get_args(Series))
        check_choice('axes', axes, get_args(AxisOrder))
        if head_dim % (4 * checked_integer('k_rope', k_rope, 1)):
            raise ValueError(
                f'head_dim must be a multiple of {4 * k_rope} (two axes, two channels a pair, '
                f'k_rope = {k_rope}), got {head_dim}'
            )
        self.low = 1.0  # factor of all frequencies, which LogAxialRoPE sets
        self.learned, self.series, self.axes = False, series, axes
        self.k_rope, self.shared = k_rope, shared
        if learned:  # from the fixed values
            start = self.frequency_source().of_axis().expand(num_heads, -1)
            self.freqs = nn.Parameter(start.repeat(2, 1, 1))  # [2, h, P / 2]
            self.learned = True

    @property
    def supports_ntk(self) -> bool:
        return not self.learned and self.shared

    def frequency_source(self) -> Any:
        """A tensor if the frequencies are learned, else ``AxialFrequencies``."""
        if self.learned:
            return axial_frequencies(self.freqs.unbind(), AXIS_ORDERS[self.axes])
        heads = 1 if self.shared else self.num_heads
        channels = self.head_dim // self.k_rope
        return AxialFrequencies(
            heads, channels, self.theta, self.series, self.axes, factor=self.low
        )

    def extra_repr(self) -> str:
        own = f'series={self.series}, axes={self.axes}, k_rope={self.k_rope}, shared={self.shared}'
        return f'{super().extra_repr()}, {own}'


class LogAxialRoPE(AxialRoPE):
    """Axial frequencies log-spaced in [low, high), for coordinates in [-1, 1] of the whole map.

    low (high / low) ** (k / K) for k = 0 .. K - 1, K = h D / (4 k_rope), or K = D / (4 k_rope) if
    shared. "Axial RoPE" of the fused-attention paper, from HDiT (Crowson et al., ICML 2024) and the
    code of its authors, k-diffusion. The paper's equation 5 as printed, which contradicts its text,
    is ``low=1, high=10 ** 0.25``. Checked in test_log_axial.py against k-diffusion's formula.

    Args:
        head_dim, num_heads, k_rope, shared, axes: see ``AxialRoPE``.
        low, high: radians per unit of the coordinates, half the longer side of the map.
        pair_layout: see ``Rotary``.
        coordinates: config of ``Coordinates``. None for type 'centres', as in HDiT, with
            normalize='max' and windows='map'; 'corners' is "between -1 and 1" as the paper says.
    """

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        k_rope: int = 2,
        shared: bool = False,
        low: float = math.pi,
        high: float = 10 * math.pi,
        pair_layout: PairLayout = 'half',
        coordinates: dict | None = None,
        axes: AxisOrder = 'yx',
    ) -> None:
        checked_number('low', low, above=0)
        checked_number('high', high, above=low)
        super().__init__(
            head_dim,
            num_heads,
            theta=low / high,  # a base below 1: the series rises
            pair_layout=pair_layout,
            coordinates=coordinates
            or dict(type='centres', normalize='max', windows='map'),
            axes=axes,
            k_rope=k_rope,
            shared=shared,
        )
        self.low = low

    @property
    def supports_ntk(self) -> bool:
        return False

    def extra_repr(self) -> str:
        return f'low={self.low:.4g}, {super().extra_repr()}'


class OffsetAxialRoPE(AxialRoPE):
    """Axial frequencies, and learned angles that are subtracted from the angles of all tokens.

    angle = F[0] x + F[1] y - offset. Scores depend on differences of angles only, so an offset
    changes nothing between tokens of the grid: it places the prefix tokens, which attention does
    not rotate. MLCD and RICE rotate their class token by learned angles (An et al., "Multi-label
    Cluster Discrimination for Visual Representation Learning", ECCV 2024; the authors' code). With
    these as the offset, all scores are the same.

    ``rope_scaling`` changes the frequencies but not the offset: the token at x = y = 0 keeps its
    angles to the prefix tokens. In windows, x and y are counted from the corner of each window,
    unless prefix tokens attend to the whole grid (``window_prefix='global'``).

    Args:
        head_dim, num_heads, settings: see ``AxialRoPE``.

    Attributes:
        angle_offset: [1, P] radians, the same for all heads; float32, initially 0.
    """

    def __init__(self, head_dim: int, num_heads: int, **settings: Any) -> None:
        super().__init__(head_dim, num_heads, **settings)
        self.angle_offset = nn.Parameter(torch.zeros(1, head_dim // (2 * self.k_rope)))

    def forward(self, x: Tensor, grid: Size, window_size: Size | None = None) -> Rotary:
        """See ``RotaryEmbedding``."""
        rotary = super().forward(x, grid, window_size)
        # [n, h or 1, P]
        angles = rotary.angles - self.angle_offset.to(rotary.angles.dtype)
        return replace(rotary, angles=angles)
