"""Rotary embedding with fixed directions that cover the half circle.

Letters: h heads, P = D / 2 channel pairs of a head with D channels. Checked in
tests/research/test_directions.py against written-out formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from mmengine.registry import MODELS
from torch import Tensor

from rope_dense.rope import GridRoPE
from rope_dense.rope.frequencies import FixedFrequencies
from rope_dense.rope.rotation import PairLayout
from rope_dense.utils.validation import check_choice, checked_number, refuse

Directions = Literal['golden', 'simplex', 'random']
GOLDEN_ANGLE = math.pi * (math.sqrt(5) - 1) / 2  # radians


@MODELS.register_module()
class DirectionRoPE(GridRoPE):
    """Every pair rotates along a fixed direction: angle = w (cos(phi) x + sin(phi) y).

    Without parameters. The first pairs of a head have w = 0; the others have n values from ``low``
    to ``high``, both included, w_j = low (high / low) ** (j / (n - 1)), j = 0 .. n - 1.

    ===========  ===================================================================================
    directions   phi
    ===========  ===================================================================================
    ``golden``   (i P + t) pi (sqrt(5) - 1) / 2 of pair t of head i (Xiong, "N-dimensional rotary
                 positional embeddings", 2025, jerryxio.ng/posts/nd-rope)
    ``simplex``  0, 2 pi / 3, 4 pi / 3 of the three pairs with the same w, which is the same for all
                 heads (nD-RoPE, arXiv 2606.12146). Number and range of w are our choice, as is w =
                 0 for the pairs that are left over
    ``random``   U[0, 2 pi) of each pair and head, drawn once; frequencies are part of the state
    ===========  ===================================================================================

    The default ``low``, ``high`` and ``zeros`` are of the first source, for ViT-B/16. Its
    coordinates have the outer tokens of a square grid at -1 and 1, as type 'corners'.

    Args:
        head_dim, num_heads, pair_layout: see ``GridRoPE``.
        directions: see above.
        low, high: radians per unit of the coordinates.
        zeros: share of the pairs that do not rotate, from 0, less than 1.
        coordinates: config of ``Coordinates``. None for type 'corners' with normalize='max' and
            windows='map'.

    Raises:
        ValueError: a value that is not allowed, or fewer than three rotated pairs of a simplex.
    """

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        directions: Directions = 'golden',
        low: float = 0.2,
        high: float = 20.0,
        zeros: float = 0.25,
        pair_layout: PairLayout = 'interleaved',
        coordinates: dict | None = None,
    ) -> None:
        check_choice('directions', directions, get_args(Directions))
        checked_number('low', low, above=0)
        checked_number('high', high, above=low)
        checked_number('zeros', zeros, 0, below=1)
        coordinates = coordinates or dict(
            type='corners', normalize='max', windows='map'
        )
        super().__init__(head_dim, num_heads, low / high, pair_layout, coordinates)
        pairs = head_dim // 2
        rotated = pairs - round(zeros * pairs)
        rotated -= rotated % 3 if directions == 'simplex' else 0
        if not rotated:
            refuse(
                'zeros',
                zeros,
                f'a share that leaves {directions} pairs of {pairs} to rotate',
            )
        self.fixed = DirectionFrequencies(
            num_heads, pairs, rotated, directions, low, high
        )
        drawn: Tensor | None = None
        if directions == 'random':
            phi = 2 * math.pi * torch.rand(num_heads, pairs)
            drawn = self.fixed.speeds(phi.device) * torch.stack([phi.cos(), phi.sin()])
        self.freqs: Tensor | None
        self.register_buffer('freqs', drawn)  # [2, h, P]

    def frequency_source(self) -> Tensor | FixedFrequencies:
        return self.fixed if self.freqs is None else self.freqs

    def extra_repr(self) -> str:
        return f'{self.fixed}, {super().extra_repr()}'


@dataclass(frozen=True)
class DirectionFrequencies:
    """Frequencies of pairs with fixed directions, see ``DirectionRoPE``.

    Attributes:
        heads, pairs: h and P.
        rotated: pairs of a head with w above 0.
        directions, low, high: see ``DirectionRoPE``.
    """

    heads: int
    pairs: int
    rotated: int
    directions: Directions
    low: float
    high: float

    def tensor(self, device: torch.device) -> Tensor:
        """[2, h or 1, P]."""
        heads = 1 if self.directions == 'simplex' else self.heads
        index = torch.arange(heads * self.pairs, device=device).view(heads, -1)
        if self.directions == 'simplex':
            phi = 2 * math.pi / 3 * ((index - self.pairs + self.rotated) % 3)
        else:
            phi = GOLDEN_ANGLE * index.double()  # of hundreds of radians
        return self.speeds(device) * torch.stack([phi.cos(), phi.sin()]).float()

    def speeds(self, device: torch.device) -> Tensor:
        """The factors w: [P]."""
        repeats = 3 if self.directions == 'simplex' else 1
        number = self.rotated // repeats
        exponents = torch.arange(number, device=device) / max(number - 1, 1)
        series = self.low * (self.high / self.low) ** exponents
        rest = series.new_zeros(self.pairs - self.rotated)
        return torch.cat([rest, series.repeat_interleave(repeats)])
