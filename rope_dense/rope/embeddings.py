"""Rotary embeddings: modules that give attention its angles.

Letters: H x W token grid, N tokens, D channels of a head, h heads, P rotated channel pairs of a
head. Frequencies are in radians per unit of the coordinates, which is a patch unless said
otherwise. Formulas: Heo et al., "Rotary Position Embedding for Vision Transformer" (ECCV 2024),
section 3. Checked against timm's independent modules in tests/rope/test_frequencies.py.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final, get_args

import torch
from torch import Tensor, nn

from ..utils.memo import LastResult, memo
from ..utils.sizes import Size
from ..utils.validation import check_choice, checked_integer, checked_number
from .frequencies import FixedFrequencies, axis_frequencies
from .grid import Coordinates, RopeScaling, build_coordinates
from .rotation import PairLayout, Rotary


class RotaryEmbedding(nn.Module, ABC):
    """Base of all rotary embeddings: one module in each attention that rotates.

    A subclass defines ``forward``, which may compute the angles from anything: see
    docs/extending.md. Backbones build it with ``head_dim`` and ``num_heads`` added to the
    arguments of its config.

    Args:
        head_dim: D.
        num_heads: h.
        pair_layout: see ``Rotary``.
    """

    def __init__(
        self, head_dim: int, num_heads: int, pair_layout: PairLayout = 'interleaved'
    ) -> None:
        super().__init__()
        self.scaling: RopeScaling | None = None
        self.ground: tuple[Tensor, Size] | None = None  # see ``set_ground``
        self.head_dim = checked_integer('head_dim', head_dim, 1)
        self.num_heads = checked_integer('num_heads', num_heads, 1)
        check_choice('pair_layout', pair_layout, get_args(PairLayout))
        self.pair_layout = pair_layout

    @abstractmethod
    def forward(self, x: Tensor, grid: Size, window_size: Size | None = None) -> Rotary:
        """The angles for one call of attention.

        Args:
            x: [B, N, C], the input of the qkv projection, prefix tokens first.
            grid: (H, W) of the tokens after the prefix.
            window_size: of the windows, or None where attention is global.

        Returns:
            Angles of the tokens after the prefix. [n, h or 1, P] for the tokens of an image, or of
            one window if there are windows; the same for all. Or [B, n, h or 1, P] for all tokens
            of each image, also if there are windows, into which they go with their tokens.
        """

    def _apply(
        self, fn: Callable[[Tensor], Tensor], recurse: bool = True
    ) -> RotaryEmbedding:
        """Move parameters and buffers, as ``nn.Module`` does, but keep float32 at least.

        In bfloat16 a frequency has 8 bits: at the 64th token that is an angle of 0.2 radians.
        """

        def apply(tensor: Tensor) -> Tensor:
            changed = fn(tensor)
            if changed.is_floating_point() and changed.itemsize < 4:
                return tensor.to(changed.device, torch.float32)
            return changed

        return super()._apply(apply, recurse)

    @property
    def is_scalable(self) -> bool:
        """True if a type of ``RopeScaling`` other than 'none' is allowed."""
        return False

    def set_scaling(self, scaling: RopeScaling | None) -> None:
        """Adapt the frequencies to larger grids; ValueError if this embedding cannot scale so."""
        if scaling is not None:
            raise ValueError(
                f'rope_scaling must be None: {type(self).__name__} cannot be scaled'
            )

    def set_ground(self, factors: Tensor, trained: Size) -> None:
        """Let neighbours be as far apart as in the grid of the training, times factors [B]."""
        raise ValueError(
            f'ground_distance: {type(self).__name__} has no positions in patches; leave it out'
        )

    def extra_repr(self) -> str:
        return f'pair_layout={self.pair_layout}'


class GridRoPE(RotaryEmbedding):
    """Angles that are linear in the position of a token: angle = F[0] x + F[1] y.

    A subclass defines ``frequency_source``. Angles of fixed frequencies are remembered (``memo``),
    once for all blocks with equal frequencies. For learned frequencies only positions are.

    Args:
        head_dim, num_heads, pair_layout: see ``RotaryEmbedding``; ``head_dim`` is a multiple of 4.
        theta: base of the geometric series of frequencies; larger means lower frequencies.
        coordinates: config of ``Coordinates``; by default the patch index.
    """

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        theta: float,
        pair_layout: PairLayout = 'interleaved',
        coordinates: dict | None = None,
    ) -> None:
        super().__init__(head_dim, num_heads, pair_layout)
        if head_dim % 4:
            raise ValueError(
                f'head_dim must be a multiple of 4 (two axes, two channels a pair), got {head_dim}'
            )
        self.theta = checked_number('theta', theta, above=0)
        self.coordinates = build_coordinates(coordinates)
        self.last_result = LastResult()

    @abstractmethod
    def frequency_source(self) -> Tensor | FixedFrequencies:
        """F [2, h or 1, P], index 0 for x and 1 for y: a tensor, or its frozen specification.

        Angles are remembered by the specification, so it has all that the frequencies depend on.
        Frequencies that depend on tensors, whose values can change, are returned as a tensor.
        """

    @final
    def frequencies(self, device: torch.device) -> Tensor:
        """F as a tensor, [2, h or 1, P]."""
        source = self.frequency_source()
        return source if isinstance(source, Tensor) else source.tensor(device)

    def forward(self, x: Tensor, grid: Size, window_size: Size | None = None) -> Rotary:
        """See ``RotaryEmbedding``. In training mode the coordinates are augmented."""
        size = window_size or grid
        span = grid if self.coordinates.windows == 'map' else size
        # Angles are float32 whatever the precision of the model, or better.
        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        coordinates, freqs = self.coordinates, self.frequency_source()
        # Read once: another thread may set them.
        settings = (self.pair_layout, self.scaling)
        ground = self.ground
        augments = self.training and coordinates.random and ground is None
        if not isinstance(freqs, Tensor):
            if not augments and ground is None:
                return self.last_result(
                    fixed_rotary,
                    freqs,
                    *settings,
                    coordinates,
                    size,
                    span,
                    dtype,
                    device=x.device,
                )
            freqs = freqs.tensor(x.device)
        # [n, 2]
        positions = self.last_result(
            Coordinates.positions,
            coordinates,
            *size,
            grid=span if ground is None else ground[1],
            device=x.device,
            dtype=dtype,
        )
        if augments:
            positions = coordinates.augmented(positions)
        if ground is not None:
            positions = coordinates.on_ground(positions, *ground)
        return linear_rotary(positions, freqs, *settings, size)

    @property
    def is_scalable(self) -> bool:
        return not self.coordinates.is_normalized

    def set_scaling(self, scaling: RopeScaling | None) -> None:
        if scaling is not None and scaling.type != 'none' and not self.is_scalable:
            raise ValueError(
                f'rope_scaling: type {scaling.type!r} adapts frequencies to larger grids, and the '
                f'coordinates of this rope, {self.coordinates}, cover the same range on every grid '
                "as they are; take type 'none'"
            )
        if scaling is not None and scaling.has_ntk and not self.supports_ntk:
            raise ValueError(
                "rope_scaling: 'ntk' changes the theta of fixed axial frequencies, the same "
                f'for all heads, which {type(self).__name__} here does not have; '
                "take 'linear' or 'by_parts'"
            )
        self.scaling = scaling

    def set_ground(self, factors: Tensor, trained: Size) -> None:
        self.ground = factors, trained

    @property
    def supports_ntk(self) -> bool:
        """True for fixed frequencies from a ``theta``, the same for all heads, grouped by axis.

        The scaling 'ntk' is a change of that theta.
        """
        return False

    def extra_repr(self) -> str:
        return f'theta={self.theta}, {super().extra_repr()}, {self.coordinates}'


@memo
def fixed_rotary(
    frequencies: FixedFrequencies,
    pair_layout: PairLayout,
    scaling: RopeScaling | None,
    coordinates: Coordinates,
    size: Size,
    span: Size,
    dtype: torch.dtype,
    *,
    device: torch.device,
) -> Rotary:
    """Angles of fixed frequencies on a grid or window; normalised coordinates cover ``span``."""
    positions = coordinates.positions(*size, grid=span, device=device, dtype=dtype)
    return linear_rotary(
        positions, frequencies.tensor(device), pair_layout, scaling, size
    )


def linear_rotary(
    positions: Tensor,
    freqs: Tensor,
    pair_layout: PairLayout,
    scaling: RopeScaling | None,
    size: Size,
) -> Rotary:
    """Angles of tokens at ``positions`` [n, 2], of a grid or window of ``size``."""
    attention_scale = 1.0
    if freqs.dtype != positions.dtype:
        freqs = freqs.to(positions.dtype)
    if scaling is not None:
        freqs = scaling.scale(freqs, *size)
        attention_scale = scaling.attention_scale(*size)
    return Rotary(linear_angles(positions, freqs), pair_layout, attention_scale)


class MixedRoPE(GridRoPE):
    """Every pair rotates with a learned mixture of x and y, separate for each head.

    Args:
        head_dim, num_heads, pair_layout, coordinates: see ``GridRoPE``.
        theta: of the initial values. 10 as in the released code; the paper gives none for mixed
            frequencies (its 100, equation 13, is for axial ones).
    """

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        theta: float = 10.0,
        pair_layout: PairLayout = 'interleaved',
        coordinates: dict | None = None,
    ) -> None:
        super().__init__(head_dim, num_heads, theta, pair_layout, coordinates)
        # [2, h, P]
        self.freqs = nn.Parameter(mixed_frequencies(head_dim, num_heads, theta))

    def frequency_source(self) -> Tensor:
        return self.freqs


def linear_angles(positions: Tensor, freqs: Tensor) -> Tensor:
    """Angles [..., N, h, P] of tokens at ``positions`` [..., N, A] for ``freqs`` [A, h, P].

    A axes, (x, y) or others.
    """
    return (positions[..., None, None] * freqs).sum(-3)


def mixed_frequencies(head_dim: int, num_heads: int, theta: float) -> Tensor:
    """Initial mixed frequencies: [2, h, P].

    The axial frequency vectors, the axes of each head rotated by an angle drawn from U[0, 2 pi).
    """
    series = axis_frequencies(head_dim, theta)
    angle = 2 * math.pi * torch.rand(num_heads, 1)
    direction = torch.cat([angle, angle + math.pi / 2], -1).repeat_interleave(
        len(series), -1
    )
    return series.repeat(2) * torch.stack([direction.cos(), direction.sin()])
