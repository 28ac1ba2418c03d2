"""Rotary embeddings: modules that give attention its angles.

Letters: H x W token grid, N tokens, D channels of a head, h heads, P rotated channel pairs of a
head. Frequencies are in radians per unit of the coordinates, which is a patch unless said
otherwise. Formulas: Heo et al., "Rotary Position Embedding for Vision Transformer" (ECCV 2024),
section 3, and "Revisiting Positional Information in Transformers in the Era of Fused Attention"
("fused-attention paper"). Checked against timm's independent modules in test_frequencies.py
and against written-out formulas in tests/rope/test_log_axial.py.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from ..utils.cache import Cache
from ..utils.sizes import Size
from ..utils.validation import check_choice, check_integer, check_number
from .coordinates import build_coordinates
from .frequencies import (
    Series,
    axial_frequencies,
    axis_frequencies,
    linear_angles,
    mixed_frequencies,
)
from .rotate import PairLayout, Rotary
from .scaling import RopeScaling

AxisOrder = Literal['xy', 'yx', 'alternating']
AXIS_ORDERS: dict[AxisOrder, tuple[int, ...] | None] = dict(xy=(0, 1), yx=(1, 0), alternating=None)


class RotaryEmbedding(nn.Module, ABC):
    """Base of all rotary embeddings: one module in each attention that rotates.

    A subclass defines ``forward``, which may make the angles of anything: see
    docs/architecture.md. Backbones build it with ``head_dim`` and ``num_heads`` added to the
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
        self.head_dim = check_integer('head_dim', head_dim, 1)
        self.num_heads = check_integer('num_heads', num_heads, 1)
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

    def set_scaling(self, scaling: RopeScaling | None) -> None:
        """Adapt the frequencies to grids larger than in pre-training.

        Raises:
            ValueError: this embedding does not support this scaling.
        """
        if scaling is not None:
            raise ValueError(f'rope_scaling must be None: {type(self).__name__} cannot be scaled')

    def extra_repr(self) -> str:
        return f'pair_layout={self.pair_layout}'


class GridRoPE(RotaryEmbedding):
    """Angles that are linear in the position of a token: angle = F[0] x + F[1] y.

    A subclass defines ``frequencies``, and ``cache_key`` if they depend on its attributes alone.
    With a key, angles are cached, once for all blocks that have the same; without, positions are.

    Args:
        head_dim, num_heads, pair_layout: see ``RotaryEmbedding``; ``head_dim`` is a multiple of 4.
        theta: base of the geometric series of frequencies; larger means lower frequencies.
        coordinates: config of ``Coordinates``; by default the patch index.
    """

    ANGLE_CACHE: ClassVar[Cache[Rotary]] = Cache(measure=Rotary.count_bytes)
    POSITION_CACHE: ClassVar[Cache[Tensor]] = Cache()

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
        self.theta = check_number('theta', theta, above=0)
        self.coordinates = build_coordinates(coordinates)

    @abstractmethod
    def frequencies(self, device: torch.device) -> Tensor:
        """[2, h or 1, P]; index 0 for x, 1 for y."""

    def set_scaling(self, scaling: RopeScaling | None) -> None:
        if scaling is not None and scaling.type != 'none' and self.coordinates.is_normalized:
            raise ValueError(
                f'rope_scaling: type {scaling.type!r} adapts frequencies to larger grids, and the '
                f'coordinates of this rope, {self.coordinates}, cover the same range on every grid '
                "as they are; take type 'none'"
            )
        if scaling is not None and scaling.type == 'ntk' and not self.has_theta:
            raise ValueError(
                "rope_scaling: type 'ntk' changes the theta of fixed axial frequencies, the same "
                f'for all heads, which {type(self).__name__} here does not have; '
                "take 'linear' or 'by_parts'"
            )
        self.scaling = scaling

    @property
    def has_theta(self) -> bool:
        """True if a change of ``theta`` changes all frequencies as the scaling 'ntk' does.

        They are fixed, the same for all heads, and those of one axis come before the other's.
        """
        return False

    def cache_key(self) -> Hashable | None:
        """The attributes that the frequencies depend on; None if the angles must not be cached.

        By default nothing is cached, and a subclass does not inherit the key of its base, since its
        frequencies may depend on more. Frequencies that are computed from tensors have no key: a
        tensor can change without notice, by what is written to its ``.data`` for instance.
        """
        return None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if 'cache_key' not in vars(cls):
            cls.cache_key = GridRoPE.cache_key  # type: ignore[method-assign]

    def forward(self, x: Tensor, grid: Size, window_size: Size | None = None) -> Rotary:
        """See ``RotaryEmbedding``. In training mode the coordinates are augmented."""
        size = window_size or grid
        grid = grid if self.coordinates.windows == 'map' else size
        # Angles are float32 whatever the precision of the model, or better.
        dtype = torch.promote_types(x.dtype, torch.float32)
        augments = self.training and self.coordinates.random
        where = self.coordinates, size, grid, dtype

        def make_positions() -> Tensor:
            return self.coordinates.positions(*size, grid=grid, device=x.device, dtype=dtype)

        def make_rotary() -> Rotary:
            return self.rotary(make_positions(), size)

        key = None if augments else self.cache_key()
        if key is not None:
            key = type(self), key, self.pair_layout, self.scaling, *where
            return self.ANGLE_CACHE.get(key, x.device, make_rotary)
        positions = self.POSITION_CACHE.get(where, x.device, make_positions)
        return self.rotary(self.coordinates.augmented(positions) if augments else positions, size)

    def rotary(self, positions: Tensor, size: Size) -> Rotary:
        """The angles of tokens at ``positions`` [n, 2], of a grid or window of ``size``."""
        freqs, attention_scale = self.frequencies(positions.device).to(positions.dtype), 1.0
        if self.scaling is not None:
            freqs = self.scaling.scale(freqs, *size)
            attention_scale = self.scaling.attention_scale(*size)
        return Rotary(linear_angles(positions, freqs), self.pair_layout, attention_scale)

    def extra_repr(self) -> str:
        return f'theta={self.theta}, {super().extra_repr()}, {self.coordinates}'


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
            'alternating' if pairs 0, 2, ... rotate with x and 1, 3, ... with y: the paper's formula
            as printed (equation 12), which its released weights do not follow.
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
        if head_dim % (4 * check_integer('k_rope', k_rope, 1)):
            raise ValueError(
                f'head_dim must be a multiple of {4 * k_rope} (two axes, two channels a pair, '
                f'k_rope = {k_rope}), got {head_dim}'
            )
        self.learned, self.series, self.axes = learned, series, axes
        self.k_rope, self.shared = k_rope, shared
        if learned:
            start = self.axis_frequencies().expand(num_heads, -1)
            self.freqs = nn.Parameter(start.repeat(2, 1, 1))  # [2, h, P / 2]

    @property
    def has_theta(self) -> bool:
        fixed = not self.learned and self.series != 'bands'
        return fixed and self.shared and self.axes != 'alternating'

    def cache_key(self) -> Hashable | None:
        if self.learned:
            return None
        sizes = self.head_dim, self.num_heads, self.k_rope
        return *sizes, self.theta, self.series, self.axes, self.shared

    def frequencies(self, device: torch.device) -> Tensor:
        if self.learned:
            of_axes: Sequence[Tensor] = self.freqs.unbind()  # [h, P / 2] each
        else:
            of_axes = [self.axis_frequencies(device)] * 2
        return axial_frequencies(of_axes, AXIS_ORDERS[self.axes])

    def axis_frequencies(self, device: torch.device | None = None) -> Tensor:
        """The fixed frequencies of one axis: [h or 1, P / 2]."""
        heads = 1 if self.shared else self.num_heads
        channels = self.head_dim // self.k_rope
        series = axis_frequencies(heads * channels, self.theta, self.series, device)
        return series.view(-1, heads).T

    def extra_repr(self) -> str:
        own = f'series={self.series}, axes={self.axes}, k_rope={self.k_rope}, shared={self.shared}'
        return f'{super().extra_repr()}, {own}'


class LogAxialRoPE(AxialRoPE):
    """Axial frequencies log-spaced in [low, high), for coordinates in [-1, 1] of the whole map.

    low (high / low) ** (k / N) for k = 0 .. N - 1, N = h D / (4 k_rope), or N = D / (4 k_rope) if
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
        check_number('low', low, above=0)
        check_number('high', high, above=low)
        super().__init__(
            head_dim,
            num_heads,
            theta=low / high,  # a base below 1: the series rises
            pair_layout=pair_layout,
            coordinates=coordinates or dict(type='centres', normalize='max', windows='map'),
            axes=axes,
            k_rope=k_rope,
            shared=shared,
        )
        self.low = low

    @property
    def has_theta(self) -> bool:
        return False

    def cache_key(self) -> Hashable | None:
        return self.low, super().cache_key()

    def axis_frequencies(self, device: torch.device | None = None) -> Tensor:
        return self.low * super().axis_frequencies(device)

    def extra_repr(self) -> str:
        return f'low={self.low:.4g}, {super().extra_repr()}'


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
        self.freqs = nn.Parameter(mixed_frequencies(head_dim, num_heads, theta))  # [2, h, P]

    def frequencies(self, device: torch.device) -> Tensor:
        return self.freqs
