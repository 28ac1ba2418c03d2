"""Attention whose scores are parabolas of the offset, with coefficients of each query (PaPE).

Letters: see docs/architecture.md; H x W and n = H W also of a window; M parabolas of a head.
Positions p = (x, y), x = column. Checked in tests/research/test_position_kinds.py against the sums
over M in float64.

A score is linear in the coefficients of the query, and each of its terms a product of a function of
the query's position with one of the key's; so a few channels of queries and keys hold it, and
nothing has the size of all pairs of tokens.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.registry import MODELS
from torch import Tensor

from rope_dense.backbones.windows import WindowPlan
from rope_dense.utils.memo import memo
from rope_dense.utils.sizes import Size
from rope_dense.utils.validation import checked_integer

from .distance_bias import MeasuredAttention, uniform_parameter

PREFIX = 64.0  # channel of keys that are prefix tokens: not 1, as float16 ends at 65504


class ParabolaAttention(MeasuredAttention):
    """Attention with scores that have a quadratic form of the offset from a query to a key.

    A score is D ** -0.5 (q . k + sum_i c_i f_i(p - p')), with coefficients c of the query and
    functions f of a subclass. Scores from and to prefix tokens have q . k alone. Positions are
    counted from the middle of the grid or window, which keeps channels small.

    Args:
        others: see ``MeasuredAttention``; the unit is of positions.
    """

    @abstractmethod
    def coefficients(self, x: Tensor) -> Tensor:
        """The K coefficients c of each head, [B, N, h, K], of tokens [B, N, C]."""

    @staticmethod
    @abstractmethod
    def terms(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Matrices of queries [n, K, 8] and channels of keys [n, 8] at (x, y), [n] each.

        Row i of a matrix, times the channels of a key, is f_i without what depends on the query
        alone, which the softmax removes. Column 5 is minus that, for keys that are prefix tokens,
        and 0 in the channels of others.
        """

    def attend(
        self,
        x: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        scale: float,
        grid: Size,
        plan: WindowPlan | None,
        mask: Tensor | None,
    ) -> Tensor:
        """See ``Attention.attend``; queries and keys have E more channels."""
        q, k = append_channels(
            q, k, *self.channels(x, grid, plan)
        )  # [B or W, h, n, D + E]
        head_dim = v.shape[-1]
        v = F.pad(
            v, (0, q.shape[-1] - head_dim)
        )  # fused kernels take one size of heads
        out = super().attend(x, q, k, v, scale, grid, plan, mask)
        return out.unflatten(2, (self.num_heads, -1))[..., :head_dim].flatten(2)

    def channels(
        self, x: Tensor, grid: Size, plan: WindowPlan | None
    ) -> tuple[Tensor, Tensor]:
        """Channels of queries [B or W, h, n, 8] and of keys [n, 8], the same for all heads."""
        factors, size = self.coefficients(x), grid
        if plan is not None:
            factors, size = plan.partition(factors), plan.window_size  # [W, n, h, K]
        before = factors.shape[1] - size[0] * size[1]
        matrices, keys = parabola_terms(
            type(self), before, *size, self.reference, device=x.device
        )
        # No matrix product, which autocast would compute in half precision.
        queries = (factors[..., None] * matrices[:, None]).sum(-2)  # [B or W, n, h, 8]
        return queries.transpose(1, 2), keys


@MODELS.register_module('PaPE')
class PaPEAttention(ParabolaAttention):
    """Attention with parabolic position encoding (PaPE), exactly, in five channels of a head.

    A score is D ** -0.5 (q . k - sum_m a_m (w_m . dp) ** 2 + sum_m b_m w_m . dp), dp = p - p' from
    key to query. w is learned, and a = softplus(W_a x), b = W_b x of the token x of the query. That
    is -dp^T A dp + b' . dp with A = sum_m a_m w_m w_m^T and b' = sum_m b_m w_m. A sixth channel
    keeps the scores of prefix tokens free of positions, and two are zero: fused kernels take
    multiples of eight.

    arXiv 2602.01418, whose class token is at (0, 0), one patch outside the first token.

    Args:
        num_parabolas: M.
        others: see ``MeasuredAttention``.

    Raises:
        ValueError: less than one parabola.
    """

    def __init__(self, *args: Any, num_parabolas: int = 50, **kwargs: Any) -> None:
        checked_integer('attention: num_parabolas', num_parabolas, 1)
        super().__init__(*args, **kwargs)
        heads, channels = self.num_heads, self.proj.in_features
        self.directions = uniform_parameter(heads, num_parabolas, 2, fan_in=2)  # w
        self.quadratic_weight, self.linear_weight = (  # W_a, W_b
            uniform_parameter(heads, num_parabolas, channels, fan_in=channels)
            for _ in range(2)
        )

    def coefficients(self, x: Tensor) -> Tensor:
        """(A_xx, A_yy, A_xy, b'_x, b'_y) of each head: [B, N, h, 5]."""
        w = self.directions
        squares = torch.cat([w.square(), w.prod(-1, keepdim=True)], -1)  # [h, M, 3]
        a = F.softplus(F.linear(x, self.quadratic_weight.flatten(0, 1)))
        a = a.unflatten(-1, w.shape[:2])  # [B, N, h, M]
        quadratic = torch.einsum('bnhm,hmi->bnhi', a, squares)
        weight = torch.einsum(
            'hmc,hmi->hic', self.linear_weight, w
        )  # of b' alone: no b in memory
        linear = F.linear(x, weight.flatten(0, 1)).unflatten(-1, (-1, 2))
        return torch.cat([quadratic, linear], -1)

    @staticmethod
    def terms(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """See ``ParabolaAttention.terms``."""
        one, zero = torch.ones_like(x), torch.zeros_like(x)
        rows = [
            [-one, zero, zero, 2 * x, zero, x * x, zero, zero],
            [zero, -one, zero, zero, 2 * y, y * y, zero, zero],
            [zero, zero, -2 * one, 2 * y, 2 * x, 2 * x * y, zero, zero],
            [zero, zero, zero, -one, zero, -x, zero, zero],
            [zero, zero, zero, zero, -one, -y, zero, zero],
        ]
        matrices = torch.stack([torch.stack(row, -1) for row in rows], 1)
        return matrices, torch.stack([x * x, y * y, x * y, x, y, zero, zero, zero], -1)


@MODELS.register_module('IsotropicPaPE')
class IsotropicPaPEAttention(ParabolaAttention):
    """Attention with the rotation-invariant form of PaPE (PaPE-RI), in three channels of a head.

    A score is D ** -0.5 (q . k - a r d ** 2), d the distance: a = softplus(w x)
    of the token x of the query, and r = c ** 2 of the head, c drawn once from U[-1, 1] / sqrt(2);
    r is part of the state. A fourth channel is of prefix tokens, as in ``PaPEAttention``, and four
    are zero.

    Args:
        others: see ``MeasuredAttention``.
    """

    rates: Tensor

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        channels = self.proj.in_features
        self.weight = uniform_parameter(self.num_heads, channels, fan_in=channels)
        self.register_buffer(
            'rates', (2 * torch.rand(self.num_heads) - 1).square() / 2
        )  # r

    def coefficients(self, x: Tensor) -> Tensor:
        """The factors a r: [B, N, h, 1]."""
        return (F.softplus(F.linear(x, self.weight)) * self.rates)[..., None]

    @staticmethod
    def terms(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """See ``ParabolaAttention.terms``."""
        one, zero, square = torch.ones_like(x), torch.zeros_like(x), x * x + y * y
        row = torch.stack([-one, 2 * x, 2 * y, zero, zero, square, zero, zero], -1)
        return row[:, None], torch.stack(
            [square, x, y, zero, zero, zero, zero, zero], -1
        )


@memo
def parabola_terms(
    kind: type[ParabolaAttention],
    before: int,
    height: int,
    width: int,
    reference: Size | None = None,
    *,
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    """``ParabolaAttention.terms`` of a grid after ``before`` prefix tokens: [N, K, 8] and [N, 8].

    Positions in patches are halves; they and their products are exact in float32 up to 1000 tokens
    a side. ``reference`` is the grid of the unit 'grid'.
    """
    rows, columns = (
        torch.arange(side, device=device).float() - (side - 1) / 2
        for side in (height, width)
    )
    if reference is not None:
        rows, columns = rows / height * reference[0], columns / width * reference[1]
    y = rows[:, None].expand(height, width).flatten()
    x = columns.expand(height, width).flatten()
    matrices, keys = kind.terms(x, y)
    prefix = F.one_hot(torch.full((before,), 5, device=device), 8).float()
    scale = torch.where(
        torch.arange(8, device=device) == 5, PREFIX, 1.0
    )  # of float16's range
    matrices = F.pad(matrices / scale, (0, 0, 0, 0, before, 0))
    return matrices, torch.cat([PREFIX * prefix, keys])


def append_channels(
    q: Tensor, k: Tensor, q_channels: Tensor, k_channels: Tensor
) -> tuple[Tensor, Tensor]:
    """Append channels, which broadcast to [B, h, n, E], to queries and keys [B, h, n, D].

    If queries are in half precision and channels are not, 3 E channels are appended: (a + a')
    (b + b') is a b + a b' + a' b, with a rounded to half precision, and a' the rest, rounded.
    """
    if q.dtype.itemsize < 4 <= q_channels.dtype.itemsize:
        (a, a_rest), (b, b_rest) = (
            split_half(x, q.dtype) for x in (q_channels, k_channels)
        )
        q_channels, k_channels = (
            torch.cat([a, a, a_rest], -1),
            torch.cat([b, b_rest, b], -1),
        )
    q_channels, k_channels = (
        channels.to(x.dtype).expand(*x.shape[:-1], -1)
        for x, channels in ((q, q_channels), (k, k_channels))
    )
    return torch.cat([q, q_channels], -1), torch.cat([k, k_channels], -1)


def split_half(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Values rounded to ``dtype``, and what rounding removed, rounded too."""
    rounded = x.to(dtype)
    return rounded, (x - rounded).to(dtype)
