"""Frequencies for grids that the weights were not trained on.

Every scaling multiplies each frequency by a factor of its own. Letters: s the size of a grid over
that of pre-training (of each axis, x and y), G the pre-training size in patches, F a frequency in
radians per patch, P channel pairs of a head, n = P / 2 frequencies of an axial series.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

ScalingType = Literal['none', 'linear', 'ntk', 'by_parts']
TemperatureType = Literal['log', 'yarn']


@dataclass(frozen=True)
class RopeScaling:
    """How frequencies, and the temperature of attention, follow the size of the grid.

    ============  ==================================================================================
    type          factor of a frequency
    ============  ==================================================================================
    ``none``      1: positions run past the pre-training range (Heo et al., ECCV 2024)
    ``linear``    1 / s: the pre-training range, sampled finer (Chen et al., "Extending Context
                  Window of Large Language Models via Positional Interpolation", 2023)
    ``ntk``       s ** (-k / (n - 1)) for the k-th of n frequencies of an axis: the highest stays,
                  the lowest is divided by s. The same as theta * s ** (n / (n - 1)) (bloc97,
                  "NTK-aware scaled RoPE", 2023). Only for frequencies that come from a theta.
    ``by_parts``  by r = |(F_x G_x, F_y G_y)| / (2 pi), its turns across the pre-training grid:
                  1 / s up to ``alpha`` turns, 1 from ``beta`` turns, a ramp between (Peng et al.,
                  "YaRN", ICLR 2024, section 3.2). A learned vector keeps its direction where both
                  axes grow alike.
    ============  ==================================================================================

    ===========  ===================================================================================
    temperature  scores are multiplied by
    ===========  ===================================================================================
    None         1
    ``log``      log(R N) / log(N), N = G_x G_y tokens in pre-training, R = s_x s_y or 1 (Chiang
                 and
                 Cholak, "Overcoming a Theoretical Limitation of Self-Attention", ACL 2022)
    ``yarn``     (0.1 log(sqrt(R)) + 1) ** 2 (Peng et al., section 3.4; the mean side for a length)
    ===========  ===================================================================================

    Checked in tests/test_scaling.py: against a theta that is changed, positions that are divided,
    and the formulas in float64; a factor of 1 changes no bit.

    Attributes:
        grid: (height, width) of pre-training, in patches.
        type: see above.
        factor: s, a number or (height, width); None: from the grid of each input, 1 where that is
            no larger than ``grid``.
        alpha, beta: turns, of ``by_parts``. The defaults suit vision: YaRN's own 32 turns are
            more than any pre-training grid of 14 patches shows.
        temperature: see above.

    Raises:
        ValueError: a value that is not allowed, named ``rope_scaling``.
    """

    grid: tuple[int, int]
    type: ScalingType
    factor: float | tuple[float, float] | None = None
    alpha: float = 1.0
    beta: float = 2.0
    temperature: TemperatureType | None = None

    def __post_init__(self) -> None:
        if self.type not in get_args(ScalingType):
            raise ValueError(
                f'rope_scaling: type must be one of {get_args(ScalingType)}, got {self.type!r}'
            )
        factors = self.factor if isinstance(self.factor, (tuple, list)) else (self.factor,) * 2
        if self.factor is not None and (
            len(factors) != 2 or any(not 0 < factor < math.inf for factor in factors)
        ):
            raise ValueError(
                'rope_scaling: factor must be a positive number, two of them (height, width) or '
                f'None, got {self.factor!r}'
            )
        if not 0 <= self.alpha < self.beta:
            raise ValueError(
                'rope_scaling: 0 <= alpha < beta must hold, '
                f'got alpha={self.alpha}, beta={self.beta}'
            )
        if self.temperature is not None and self.temperature not in get_args(TemperatureType):
            raise ValueError(
                f'rope_scaling: temperature must be one of {get_args(TemperatureType)} or None, '
                f'got {self.temperature!r}'
            )

    def factors(self, *, height: int, width: int) -> tuple[float, float]:
        """(s_y, s_x) of a grid."""
        if self.factor is None:
            return max(1.0, height / self.grid[0]), max(1.0, width / self.grid[1])
        if isinstance(self.factor, (tuple, list)):
            return self.factor[0], self.factor[1]
        return self.factor, self.factor

    def scale(self, freqs: Tensor, *, height: int, width: int) -> Tensor:
        """The frequencies [2, ..., P] for a grid, x at index 0; differentiable in ``freqs``."""
        if self.type == 'none':
            return freqs
        s_y, s_x = self.factors(height=height, width=width)
        x_factor, y_factor = (self.factor_of(freqs.detach(), s) for s in (s_x, s_y))
        return torch.stack([freqs[0] * x_factor, freqs[1] * y_factor])

    def factor_of(self, freqs: Tensor, s: float) -> Tensor | float:
        """What an axis that is s times larger multiplies its frequencies by: [..., P] or one."""
        if self.type == 'linear':
            return 1 / s
        if self.type == 'ntk':
            n = freqs.shape[-1] // 2
            k = torch.arange(n, device=freqs.device, dtype=freqs.dtype).repeat(2)
            return s ** (-k / max(n - 1, 1))
        turns = torch.hypot(freqs[0] * self.grid[1], freqs[1] * self.grid[0]) / (2 * math.pi)
        kept = ((turns - self.alpha) / (self.beta - self.alpha)).clamp(0, 1)
        return 1 - (1 - kept) * (1 - 1 / s)

    def score_factor(self, *, height: int, width: int) -> float:
        """What ``temperature`` multiplies the scores of attention on a grid by."""
        if self.temperature is None:
            return 1.0
        s_y, s_x = self.factors(height=height, width=width)
        growth = math.log(max(1.0, s_x * s_y))  # log R
        if self.temperature == 'yarn':
            return (0.1 * growth / 2 + 1) ** 2
        return 1 + growth / math.log(max(2, self.grid[0] * self.grid[1]))
