"""Series of frequencies, and angles that are linear in positions.

Letters: N tokens, A axes, D channels of a head, h heads, P rotated channel pairs of a head.
Frequencies are in radians per unit of the coordinates. Checked against timm's independent modules
in tests/rope/test_frequencies.py, and for three axes in tests/rope/test_relative.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

Series = Literal['radians', 'periods', 'bands']


def linear_angles(positions: Tensor, freqs: Tensor) -> Tensor:
    """Angles [..., N, h, P] of tokens at ``positions`` [..., N, A] for ``freqs`` [A, h, P].

    A axes, (x, y) or others.
    """
    return (positions[..., None, None] * freqs).sum(-3)


def axial_frequencies(of_axes: Sequence[Tensor], order: Sequence[int] | None = None) -> Tensor:
    """Frequencies of pairs that rotate along one of A axes each: [A, h or 1, P].

    Args:
        of_axes: frequencies along each axis, [h or 1, P / A].
        order: the axes as they come in a head: all pairs of one axis, then all of the next; None if
            the axes alternate from pair to pair.
    """
    zeros = torch.zeros_like(of_axes[0])
    rows = []
    for axis, series in enumerate(of_axes):
        parts = [series if other == axis else zeros for other in order or range(len(of_axes))]
        rows.append(torch.stack(parts, -1).flatten(-2) if order is None else torch.cat(parts, -1))
    return torch.stack(rows)


def axis_frequencies(
    head_dim: int,
    theta: float,
    series: Series = 'radians',
    device: torch.device | None = None,
    num_axes: int = 2,
) -> Tensor:
    """The frequencies of one of A = ``num_axes`` axes, k = 0 .. n - 1 with n = D / (2 A): [n].

    Float32, as in published code, also for models in float64; their angles are float64.

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
    step = 2 * num_axes
    if series == 'bands':
        return math.pi * torch.linspace(1, theta / 2, head_dim // step, device=device)
    exponents = torch.arange(0, head_dim, step, device=device, dtype=torch.float32) / head_dim
    geometric = theta**-exponents
    return 2 * math.pi * geometric if series == 'periods' else geometric


def mixed_frequencies(head_dim: int, num_heads: int, theta: float) -> Tensor:
    """Initial mixed frequencies: [2, h, P].

    The axial frequency vectors, the axes of each head rotated by an angle drawn from U[0, 2 pi).
    """
    series = axis_frequencies(head_dim, theta)
    angle = 2 * math.pi * torch.rand(num_heads, 1)
    direction = torch.cat([angle, angle + math.pi / 2], -1).repeat_interleave(len(series), -1)
    return series.repeat(2) * torch.stack([direction.cos(), direction.sin()])
