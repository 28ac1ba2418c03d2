"""What a rotary embedding hands to an attention: the angles of one grid, for one block.

    angle[n, h, t] = freqs[0, h, t] * x_n + freqs[1, h, t] * y_n        (radians)

Letters: N = H * W tokens in row-major order, h heads (or 1, shared by all), P rotated channel pairs
of a head. x is the column and y the row of a token.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

PairLayout = Literal['adjacent', 'split']
QKV = tuple[Tensor, Tensor, Tensor]  # queries, keys and values

KEPT_TOKENS = 64  # a table for so many is kept: of a small window, which many windows share


@dataclass(frozen=True, eq=False)
class Rotation:
    """The rotation of every token of an H x W grid, in one attention block.

    Attributes:
        freqs: [2, h, P], radians per patch; index 0 for x, 1 for y. Carries the gradient.
        x, y: [W] and [H], the positions of the columns and of the rows.
        columns, rows: [W, h, P] and [H, h, P] complex, the factors of x and of y, without gradient.
            Only H + W sines are ever computed: a token turns by the product of two of these.
        layout: ``'adjacent'`` turns channels (2t, 2t + 1) together, ``'split'`` (t, t + P).
        num_prefix_tokens: tokens before the grid (class token, registers), which are not rotated.
        score_factor: what attention multiplies its scores by, see ``RopeScaling``.
        shared: whether all blocks turn alike, and share this rotation. Its table is kept then, once
            one is made, and so is that of a small window; elsewhere one for every block would cost
            the memory of an activation.

    Channels of a head from 2P on are not rotated.
    """

    freqs: Tensor
    x: Tensor
    y: Tensor
    columns: Tensor
    rows: Tensor
    layout: PairLayout = 'adjacent'
    num_prefix_tokens: int = 0
    score_factor: float = 1.0
    shared: bool = False

    @property
    def num_tokens(self) -> int:
        """Tokens of a sequence that this rotation fits: the prefix and the grid."""
        return self.num_prefix_tokens + len(self.y) * len(self.x)

    def angles(self) -> Tensor:
        """[N, h, P] in radians, differentiable in ``freqs``; fast paths use ``table`` instead."""
        x_angles, y_angles = axis_angles(self.freqs, self.x, self.y)
        return (y_angles[:, None] + x_angles[None]).flatten(0, 1)  # [N, h, P]

    def table(self) -> Tensor:
        """[N, h, P] complex, ``exp(i angles)``, without gradient."""
        keep = self.shared or len(self.y) * len(self.x) <= KEPT_TOKENS
        return self._kept_table if keep else self._make_table()

    @cached_property
    def _kept_table(self) -> Tensor:
        with torch.inference_mode(False):  # or training could not use it later
            return self._make_table()

    def _make_table(self) -> Tensor:
        return (self.rows[:, None] * self.columns[None]).flatten(0, 1)

    def crop(self, *, height: int, width: int) -> Rotation:
        """The rotation of the top left ``height`` x ``width`` part of the grid."""
        if (height, width) == (len(self.y), len(self.x)):
            return self
        return replace(
            self,
            x=self.x[:width],
            y=self.y[:height],
            columns=self.columns[:width],
            rows=self.rows[:height],
            shared=False,
        )


def axis_angles(freqs: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Angles of each column and each row.

    Args:
        freqs: [2, ..., h, P].
        x, y: [W] and [H].

    Returns:
        [..., W, h, P] and [..., H, h, P].
    """
    return x[:, None, None] * freqs[0].unsqueeze(-3), y[:, None, None] * freqs[1].unsqueeze(-3)


def unit_complex(angles: Tensor) -> Tensor:
    """``exp(i angles)``."""
    return torch.complex(angles.cos(), angles.sin())
