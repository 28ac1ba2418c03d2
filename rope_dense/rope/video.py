"""Rotary embedding of video encoders, for one image.

Letters: D channels of a head, h heads, P channel pairs of a head, K of an axis.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..utils.validation import checked_number
from .embeddings import GridRoPE
from .frequencies import FixedFrequencies, axial_frequencies, axis_frequencies
from .rotation import PairLayout


class VideoRoPE(GridRoPE):
    """Axial frequencies of time, rows and columns, at time 0.

    K = D // 6 pairs rotate with the time, K with the row and K with the column, in this order, and
    the rest of a head not at all. An image is at time 0, so its first K pairs do not rotate either.
    The frequencies of an axis are factor theta ** (-k / K), k = 0 .. K - 1.

    V-JEPA 2.1 (Meta, 2026; ``RoPEAttention`` in app/vjepa_2_1/models/utils/modules.py of
    facebookresearch/vjepa2 at 16de6c8): the i-th of H rows is at 15 i / (H - 1), columns alike,
    which is ``coordinates=dict(type='corners')`` with ``factor=7.5``, but for an offset that no
    score depends on: its models have no prefix tokens. A single row or column, where the quotient
    is 0 / 0, is at 0 here. Checked in tests/checkpoints/test_vjepa.py token by token in float64.

    Args:
        head_dim, num_heads, pair_layout, coordinates: see ``GridRoPE``; ``head_dim`` is 8 or more.
        theta: see above.
        factor: of all frequencies.

    Raises:
        ValueError: a value that is not allowed.
    """

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        theta: float = 10000.0,
        factor: float = 1.0,
        pair_layout: PairLayout = 'interleaved',
        coordinates: dict | None = None,
    ) -> None:
        super().__init__(head_dim, num_heads, theta, pair_layout, coordinates)
        if head_dim < 8:
            raise ValueError(
                f'head_dim must be 8 or more (a pair for each axis), got {head_dim}'
            )
        self.factor = checked_number('factor', factor, above=0)

    def frequency_source(self) -> FixedFrequencies:
        return VideoFrequencies(self.head_dim, self.theta, self.factor)

    def extra_repr(self) -> str:
        return f'factor={self.factor}, {super().extra_repr()}'


@dataclass(frozen=True)
class VideoFrequencies:
    """Fixed frequencies of pairs that rotate with the time, the row or the column.

    Attributes:
        head_dim: D.
        theta, factor: see ``VideoRoPE``.
    """

    head_dim: int
    theta: float
    factor: float

    def tensor(self, device: torch.device) -> Tensor:
        """[2, 1, 3 K]; zero for the time."""
        channels = 2 * (self.head_dim // 6)
        series = self.factor * axis_frequencies(
            channels, self.theta, device=device, num_axes=1
        )
        x_y_time = axial_frequencies([series[None]] * 3, (2, 1, 0))  # [3, 1, 3 K]
        return x_y_time[:2]
