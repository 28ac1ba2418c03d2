"""Attention whose scores depend on the distance and the direction between two tokens.

Biases that public work on larger images compares rotary embedding with. Each works alone, with
``rope=None``, and together with a rotary embedding. Each is a table of values for the offsets of
two tokens, from which nothing of the size of all pairs is kept. Letters: see
docs/architecture.md; H x W and n = H W also of a window. Checked in
tests/research/test_position_kinds.py against written-out formulas.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from mmengine.registry import MODELS
from torch import Tensor, nn

from rope_dense.backbones.attention import Attention, Place
from rope_dense.backbones.position_bias import pair_bias
from rope_dense.utils.memo import memo
from rope_dense.utils.sizes import Size
from rope_dense.utils.validation import check_choice, checked_integer, checked_number

Distance = Literal['euclidean', 'manhattan']
Normalizer = Literal['pretraining', 'grid']
Unit = Literal['patch', 'grid']
CORNERS = ('up-left', 'up-right', 'down-left', 'down-right')
TRIANGLES = ('up', 'down', 'left', 'right')


class OffsetAttention(Attention):
    """Attention with a bias that depends on the offset of two tokens alone."""

    @abstractmethod
    def offset_values(self, size: Size, device: torch.device) -> Tensor:
        """The bias of each offset in a grid or window: [offsets, h], see ``pair_bias``."""

    def bias(self, q: Tensor, size: Size) -> Tensor:
        return pair_bias(self.offset_values(size, q.device), size)  # [h, n, n]


class MeasuredAttention(Attention):
    """Attention with scores of distances in a unit.

    Args:
        place: see ``Attention``.
        unit: 'patch'; or 'grid', the side of a patch of the pre-training grid if it covered the
            grid or window, so that every size has the distances of pre-training, as positions with
            ``rope_scaling`` 'linear'.
        others: see ``Attention``.

    Raises:
        ValueError: a unit that is not allowed.
    """

    def __init__(
        self, *args: Any, place: Place, unit: Unit = 'patch', **kwargs: Any
    ) -> None:
        check_choice('attention: unit', unit, get_args(Unit))
        super().__init__(*args, **kwargs)
        self.reference = place.grid if unit == 'grid' else None

    def distances(self, size: Size, device: torch.device) -> Tensor:
        """The Euclidean distance of each offset, [offsets, 1]."""
        return offset_distances(size, 'euclidean', self.reference, device=device)[
            :, None
        ]


@MODELS.register_module('ALiBi2D')
class ALiBi2DAttention(MeasuredAttention, OffsetAttention):
    """Attention with ALiBi in two dimensions: scores fall with the Euclidean distance.

    The bias of head i is -m_i d, d the distance, m = 2 ** (-8 i / h) for i = 1 .. h if h is a
    power of 2. Otherwise the first heads have the slopes of the next lower power, and the
    others every second slope of the next higher one. Slopes are fixed.

    Press et al., "Train Short, Test Long" (ICLR 2022), in the two-dimensional form of Fuller et
    al., "CROMA" (NeurIPS 2023).

    Args:
        others: see ``MeasuredAttention``.
    """

    slopes: Tensor

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        slopes = torch.tensor(alibi_slopes(self.num_heads))
        self.register_buffer('slopes', slopes, persistent=False)  # [h]

    def offset_values(self, size: Size, device: torch.device) -> Tensor:
        return -self.slopes * self.distances(size, device)


@MODELS.register_module('LookHere')
class LookHereAttention(MeasuredAttention, OffsetAttention):
    """Attention with LookHere: heads that look in one direction, and a decay with the distance.

    The bias is -``slope`` l m d where the head looks, -inf elsewhere; d is the distance, and l
    falls linearly from 1.5 in the first block to 0.5 in the last. A token always sees itself.
    Heads, in this order:

    ============  =======================  ================  =======================
    number        quarters                 quarters between  see everything
                  along the axes           the diagonals
    ============  =======================  ================  =======================
    6             4, m = 1/2               -                 2, m = 4 ** -1, 4 ** -2
    12            4, m = 1/2               4, m = 1/2        4, m = 4 ** -1 .. -4
    16            4, m = 1/2; 4, m = 1/4   4, m = 1/2        4, m = 4 ** -1 .. -4
    ============  =======================  ================  =======================

    Quarters along the axes (corners) are up-left, up-right, down-left and down-right of the token,
    with both axes; quarters between the diagonals (triangles) up, down, left and right, with both
    diagonals. Other numbers of heads are ours: the views of 12 heads are dealt out, a corner, a
    triangle, everything, the next corner ..., in each block from where the last one ended.

    Fuller et al., "LookHere: Vision Transformers with Directed Attention Generalize and
    Extrapolate" (NeurIPS 2024), LH-90 for 12 and 16 heads.

    Args:
        place: see ``Attention``.
        slope: global factor of all slopes.
        others: see ``MeasuredAttention``.

    Raises:
        ValueError: a slope that is not allowed.
    """

    slopes: Tensor

    def __init__(
        self, *args: Any, place: Place, slope: float = 2.0, **kwargs: Any
    ) -> None:
        checked_number('attention: slope', slope, 0)
        super().__init__(*args, place=place, **kwargs)
        layer = 1.5 - place.index / max(place.depth - 1, 1)
        views = head_views(self.num_heads, place.index)
        self.views = tuple(view for view, _ in views)
        slopes = slope * layer * torch.tensor([of_head for _, of_head in views])
        self.register_buffer('slopes', slopes, persistent=False)  # [h]

    def offset_values(self, size: Size, device: torch.device) -> Tensor:
        decay = -self.slopes * self.distances(size, device)  # [offsets, h]
        return decay.masked_fill(
            hidden_offsets(self.views, size, device=device), -torch.inf
        )


@MODELS.register_module('FIRE')
class FIREAttention(OffsetAttention):
    """Attention with FIRE in two dimensions: an MLP of the relative distance.

    The bias is MLP(f(d) / (f(r) + 1e-6)), f(u) = log(abs(c u) + 1), of the distance d of two
    tokens; c starts at 0.1. The MLP has one hidden layer of ReLUs, and an output for each head. It
    is evaluated once for each of (2 H - 1)(2 W - 1) offsets.

    Li et al., "Functional Interpolation for Relative Positions Improves Long Context Transformers"
    (ICLR 2024), is causal and one-dimensional, with r the larger of a learned length and the index
    of the query. The two-dimensional distance and r are our choice: published results in two
    dimensions (OpenReview mEGr7Fm54B) do not state theirs.

    Args:
        place: see ``Attention``.
        distance: 'euclidean' or 'manhattan', in patches.
        normalizer: r. 'pretraining': the larger of abs(s L) and the diagonal of the grid or window,
            L the diagonal of the pre-training grid and s learned from 1 on. 'grid': the diagonal of
            the grid, so that every size has the range of pre-training.
        hidden_dims: of the MLP.
        others: see ``Attention``.

    Raises:
        ValueError: a value that is not allowed.
    """

    def __init__(
        self,
        *args: Any,
        place: Place,
        distance: Distance = 'euclidean',
        normalizer: Normalizer = 'pretraining',
        hidden_dims: int = 32,
        **kwargs: Any,
    ) -> None:
        check_choice('attention: distance', distance, get_args(Distance))
        check_choice('attention: normalizer', normalizer, get_args(Normalizer))
        checked_integer('attention: hidden_dims', hidden_dims, 1)
        super().__init__(*args, **kwargs)
        self.distance, self.normalizer = distance, normalizer
        last_row, last_column = (side - 1.0 for side in place.grid)
        is_euclidean = distance == 'euclidean'
        diagonal = (
            math.hypot(last_row, last_column)
            if is_euclidean
            else last_row + last_column
        )
        self.diagonal = max(diagonal, 1.0)
        self.factor = nn.Parameter(torch.tensor([0.1]))  # c
        self.length_factor = (  # s
            nn.Parameter(torch.ones(1)) if normalizer == 'pretraining' else None
        )
        # No nn.Linear, whose initial values a backbone replaces by smaller ones.
        self.hidden_weight = uniform_parameter(hidden_dims, 1, fan_in=1)
        self.hidden_bias = uniform_parameter(hidden_dims, fan_in=1)
        self.weight = uniform_parameter(self.num_heads, hidden_dims, fan_in=hidden_dims)
        self.out_bias = uniform_parameter(self.num_heads, fan_in=hidden_dims)

    def offset_values(self, size: Size, device: torch.device) -> Tensor:
        distances = offset_distances(size, self.distance, device=device)
        relative = self.relative(distances).to(self.hidden_weight.dtype)
        hidden = F.linear(
            relative[:, None], self.hidden_weight, self.hidden_bias
        ).relu()
        return F.linear(hidden, self.weight, self.out_bias)

    def relative(self, distances: Tensor) -> Tensor:
        """Distances [offsets] to values from 0 to 1."""
        dtype = torch.promote_types(
            self.factor.dtype, distances.dtype
        )  # float32 at least
        length = (
            distances.amax(0, keepdim=True).to(dtype).clamp(min=1)
        )  # 1 for a single token
        if self.length_factor is not None:
            length = torch.maximum(
                length, (self.length_factor.to(dtype) * self.diagonal).abs()
            )
        factor = self.factor.to(dtype)
        distances, length = ((factor * u).abs().log1p() for u in (distances, length))
        return distances / (length + 1e-6)


def uniform_parameter(*shape: int, fan_in: int) -> nn.Parameter:
    """Make a parameter with the initial values of ``nn.Linear``."""
    bound = fan_in**-0.5
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))


def alibi_slopes(num_heads: int) -> list[float]:
    """The slopes m of the heads, see ``ALiBi2DAttention``."""
    power = 2 ** int(math.log2(num_heads))
    slopes = [2 ** (-8 * i / power) for i in range(1, power + 1)]
    return slopes + [
        2 ** (-4 * i / power) for i in range(1, 2 * (num_heads - power), 2)
    ]


def head_views(num_heads: int, block: int) -> list[tuple[str, float]]:
    """View and slope of each head, see ``LookHereAttention``; the view 'all' hides nothing."""
    corners, triangles = (
        [(view, 0.5) for view in views] for views in (CORNERS, TRIANGLES)
    )
    free = [('all', 4.0**-i) for i in range(1, 5)]
    if num_heads == 6:
        return corners + free[:2]
    if num_heads == 12:
        return corners + triangles + free
    if num_heads == 16:
        return corners + [(view, 0.25) for view in CORNERS] + triangles + free
    twelve = [
        pair for group in zip(corners, triangles, free, strict=True) for pair in group
    ]
    return [twelve[(block * num_heads + head) % 12] for head in range(num_heads)]


def offsets(size: Size, device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows and columns from key to query of each offset in a grid: [offsets] each, integers."""
    height, width = (2 * side - 1 for side in size)
    index = torch.arange(height * width, device=device)
    row = index.div(width, rounding_mode='floor')
    return row - (size[0] - 1), index - row * width - (size[1] - 1)


@memo
def offset_distances(
    size: Size,
    distance: Distance,
    reference: Size | None = None,
    *,
    device: torch.device,
) -> Tensor:
    """The length of each offset in a grid or window of ``size``: [offsets], float32.

    ``reference`` is the grid of the unit 'grid'; None for patches.
    """
    rows, columns = offsets(size, device)
    if reference is not None:
        rows, columns = rows / size[0] * reference[0], columns / size[1] * reference[1]
    if distance == 'manhattan':
        return (rows.abs() + columns.abs()).float()
    return (rows.square() + columns.square()).float().sqrt()


@memo
def hidden_offsets(
    views: tuple[str, ...], size: Size, *, device: torch.device
) -> Tensor:
    """True for the offsets at which a key is not seen in a view: [offsets, views]."""
    rows, columns = offsets(size, device)
    ahead = dict(up=rows, down=-rows, left=columns, right=-columns)
    farther = torch.maximum(rows.abs(), columns.abs())
    hidden = {view: ahead[view] < farther for view in TRIANGLES}
    for view in CORNERS:
        vertical, horizontal = view.split('-')
        hidden[view] = torch.minimum(ahead[vertical], ahead[horizontal]) < 0
    hidden['all'] = farther < 0
    return torch.stack([hidden[view] for view in views], -1)
