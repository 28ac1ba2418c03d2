"""Fixed frequencies of the channel pairs of a head, from geometric series.

Letters: D channels of a head, h heads, P rotated channel pairs of a head, A axes, K
frequencies of an axis.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

Series = Literal['radians', 'periods']
AxisOrder = Literal['xy', 'yx']
AXIS_ORDERS: dict[AxisOrder, tuple[int, ...]] = dict(xy=(0, 1), yx=(1, 0))


class FixedFrequencies(Protocol):
    """A frozen specification of frequencies without parameters; equal ones give equal values."""

    def tensor(self, device: torch.device) -> Tensor:
        """[2, h or 1, P]; index 0 for x, 1 for y."""

    def __hash__(self) -> int: ...


@dataclass(frozen=True)
class AxialFrequencies:
    """Fixed frequencies of pairs that rotate with x or with y, see ``AxialRoPE``.

    Attributes:
        heads: that share out one series: h, or 1 if all have the same.
        channels: of a head that are rotated, 2 P.
        theta, series: see ``axis_frequencies``.
        axes: see ``AxialRoPE``.
        factor: of all frequencies.
    """

    heads: int
    channels: int
    theta: float
    series: Series
    axes: AxisOrder
    factor: float = 1.0

    def tensor(self, device: torch.device) -> Tensor:
        """[2, h or 1, P]."""
        return axial_frequencies([self.of_axis(device)] * 2, AXIS_ORDERS[self.axes])

    def of_axis(self, device: torch.device | None = None) -> Tensor:
        """The frequencies of one axis: [h or 1, P / 2]."""
        series = axis_frequencies(
            self.heads * self.channels, self.theta, self.series, device
        )
        return self.factor * series.view(-1, self.heads).T


def axial_frequencies(of_axes: Sequence[Tensor], order: Sequence[int]) -> Tensor:
    """Frequencies of pairs that rotate along one of A axes each: [A, h or 1, P].

    Args:
        of_axes: frequencies along each axis, [h or 1, P / A].
        order: the axes as they come in a head: all pairs of one axis, then all of the next.
    """
    zeros = torch.zeros_like(of_axes[0])
    rows = [
        torch.cat([series if other == axis else zeros for other in order], -1)
        for axis, series in enumerate(of_axes)
    ]
    return torch.stack(rows)


def axis_frequencies(
    head_dim: int,
    theta: float,
    series: Series = 'radians',
    device: torch.device | None = None,
    num_axes: int = 2,
) -> Tensor:
    """The frequencies of one of A = ``num_axes`` axes, k = 0 .. K - 1 with K = D / (2 A): [K].

    Float32, as in published code, also for models in float64; their angles are float64.

    ===========  ===================================================================================
    series       frequency
    ===========  ===================================================================================
    ``radians``  theta ** (-k / K) (Heo et al.; EVA-02 and Perception Encoder with theta = 10000)
    ``periods``  2 pi theta ** (-k / K): periods theta ** (k / K), for coordinates in [-1, 1]
                 (DINOv3 with theta = 100; the buffers of its first release are these in bfloat16)
    ===========  ===================================================================================
    """
    step = 2 * num_axes
    exponents = (
        torch.arange(0, head_dim, step, device=device, dtype=torch.float32) / head_dim
    )
    geometric = theta**-exponents
    return 2 * math.pi * geometric if series == 'periods' else geometric
