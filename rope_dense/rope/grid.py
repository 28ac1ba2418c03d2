"""Positions of the tokens of a grid, and scaling of frequencies with the size of the grid.

x is the column and y the row, both counted from 0 at the top left token. Letters: G the size of the
grid in pre-training, in patches, s the size of a grid divided by G (for each axis, x and y), F a
frequency in radians per patch, P channel pairs of a head, K = P / 2 frequencies of an axis.
"""

import math
from dataclasses import dataclass, fields
from typing import Literal, get_args

import torch
from torch import Tensor

from ..utils.memo import memo
from ..utils.sizes import Size, larger, smaller
from ..utils.validation import (
    check_choice,
    checked_number,
    checked_settings,
    checked_size,
    refuse,
)

CoordinateType = Literal['index', 'centres', 'corners']
Normalization = Literal['separate', 'min', 'max']
CoordinateSpan = Literal['window', 'map']
ScalingType = Literal['none', 'linear', 'ntk', 'by_parts']
TemperatureType = Literal['log', 'yarn']


@dataclass(frozen=True, repr=False)
class Coordinates:
    """Positions of the tokens of a grid.

    ===========  ===================================================================================
    type         position of the i-th of W columns; rows alike
    ===========  ===================================================================================
    ``index``    i + offset (Heo et al., section 3.2; offset 1 in Perception Encoder). With a
                 ``reference`` grid (i + offset) G / W: the range of G patches whatever the size of
                 the image (EVA-02, Perception Encoder)
    ``centres``  2 (i + 1/2) / M - 1, in [-1, 1] (DINOv3). M is W (``normalize='separate'``) or the
                 shorter (``'min'``) or longer (``'max'``) side of the grid
    ``corners``  2 i / (M - 1) - 1, from -1 to 1
    ===========  ===================================================================================

    In training, positions are augmented: one draw for a grid, so for a whole batch, and a new one
    for each block (as in DINOv3's code). In this order, each only if it is set: both axes are
    shifted by U[-shift, shift] each, multiplied by exp U[-log jitter, log jitter] each, and
    multiplied by one exp U[-log rescale, log rescale] together. Checked in
    tests/rope/test_frequencies.py against timm's modules, draws included.

    Attributes:
        type, normalize: see above.
        offset: of ``index``.
        reference: G of ``index``, a number of patches or (height, width); None leaves the index.
        windows: the grid whose size positions depend on, in blocks with windows: the window, as if
            it were an image (``'window'``, EVA-02's detectors), or the whole map, so that tokens
            are as far apart as without windows (``'map'``).
        shift: in the unit of the positions; jitter, rescale: factors of 1 or more. None: off.

    Raises:
        ValueError: a value that is not allowed, named ``coordinates``.
    """

    type: CoordinateType = 'index'
    offset: float = 0.0
    reference: int | Size | None = None
    normalize: Normalization = 'separate'
    windows: CoordinateSpan = 'window'
    shift: float | None = None
    jitter: float | None = None
    rescale: float | None = None

    def __post_init__(self) -> None:
        check_choice('coordinates: type', self.type, get_args(CoordinateType))
        check_choice('coordinates: normalize', self.normalize, get_args(Normalization))
        check_choice('coordinates: windows', self.windows, get_args(CoordinateSpan))
        checked_number('coordinates: offset', self.offset)
        if self.type != 'index' and (self.offset or self.reference is not None):
            raise ValueError(
                f"coordinates: offset and reference belong to type 'index', got {self.type!r}"
            )
        if self.type == 'index' and self.normalize != 'separate':
            raise ValueError(
                f"coordinates: normalize={self.normalize!r} belongs to types 'centres' and "
                f"'corners', got {self.type!r}"
            )
        if self.reference is not None:
            grid = checked_size('coordinates: reference', self.reference)
            object.__setattr__(self, 'reference', grid)
        for name, least in (('shift', 0), ('jitter', 1), ('rescale', 1)):
            value = getattr(self, name)
            if value is not None:
                checked_number(f'coordinates: {name}', value, least)

    def __repr__(self) -> str:
        """The type, and what is not at its default."""
        others = ((field, getattr(self, field.name)) for field in fields(self)[1:])
        given = [
            f'{field.name}={value!r}'
            for field, value in others
            if value != field.default
        ]
        return f'Coordinates({", ".join([f"type={self.type!r}", *given])})'

    @property
    def random(self) -> bool:
        """True if positions are augmented in training."""
        return any(
            value is not None for value in (self.shift, self.jitter, self.rescale)
        )

    @property
    def is_normalized(self) -> bool:
        """True if every grid covers the same range, a larger one at a higher resolution."""
        return self.type != 'index' or self.reference is not None

    @memo
    def positions(
        self,
        height: int,
        width: int,
        *,
        grid: Size | None = None,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """[height * width, 2], the position (x, y) of each token in row-major order.

        A window needs no coordinates of its own: scores between its tokens depend on differences of
        positions only, so the grid of one window serves all windows of an image. (Prefix tokens
        stand at the origin of the coordinates, so in each window at the same place.)

        Args:
            height, width: of the tokens.
            grid: (height, width) of the grid that the tokens are the top left part of, W of the
                table; None if they are all of it.
            device, dtype: of the result, which is remembered: do not write to it.
        """
        y, x = (torch.arange(side, device=device).to(dtype) for side in (height, width))
        grid = (height, width) if grid is None else grid
        if self.normalize != 'separate':
            side = smaller(*grid) if self.normalize == 'min' else larger(*grid)
            grid = side, side
        if self.type == 'corners':
            y, x = (
                2 * n / larger(side - 1, 1) - 1
                for n, side in zip((y, x), grid, strict=True)
            )
        elif self.type == 'centres':
            y, x = (
                2 * ((n + 0.5) / side) - 1 for n, side in zip((y, x), grid, strict=True)
            )
        else:
            y, x = y + self.offset, x + self.offset
            if isinstance(self.reference, tuple):
                y, x = y / grid[0] * self.reference[0], x / grid[1] * self.reference[1]
        xy = torch.broadcast_tensors(x[None, :], y[:, None])  # [H, W] each
        return torch.stack(xy, -1).flatten(0, 1)

    def on_ground(self, positions: Tensor, factors: Tensor, trained: Size) -> Tensor:
        """Positions [n, 2], with ``trained`` as their grid, to [B, n, 2], factors [B] as far apart.

        Of ``index`` the top left corner of an image stays where it is; of others its centre is 0.
        """
        factors = factors.to(positions)[:, None]
        if self.type != 'index':
            return (positions - positions.mean(0)) * factors[..., None]
        corner = self.offset - 0.5
        covered = self.reference if isinstance(self.reference, tuple) else trained
        y, x = (corner * to / side for to, side in zip(covered, trained, strict=True))
        axes = zip(positions.unbind(-1), (x, y), strict=True)
        return torch.stack([(values - at) * factors + at for values, at in axes], -1)

    def augmented(self, positions: Tensor) -> Tensor:
        """Positions [n, 2] after one draw of the augmentation."""

        def draw(size: int, bound: float) -> Tensor:  # published code draws y, then x
            # Not ``uniform_``: torch.compile would merge the draws of all blocks in training.
            draws = torch.rand(size, dtype=positions.dtype, device=positions.device)
            return bound * (2 * draws - 1).flip(0)

        if self.shift is not None:
            positions = positions + draw(2, self.shift)
        if self.jitter is not None:
            positions = positions * draw(2, math.log(self.jitter)).exp()
        if self.rescale is not None:
            positions = positions * draw(1, math.log(self.rescale)).exp()
        return positions


def build_coordinates(settings: dict | None) -> Coordinates:
    """The coordinates of a config, by default patch indexes; ValueError for a wrong setting."""
    known = [field.name for field in fields(Coordinates)]
    return Coordinates(**checked_settings('coordinates', settings or {}, known))


@dataclass(frozen=True)
class RopeScaling:
    """A change of the frequencies, and of the temperature of attention, with the size of the grid.

    ============  ==================================================================================
    type          factor of a frequency
    ============  ==================================================================================
    ``none``      1: positions run past the pre-training range (Heo et al., ECCV 2024)
    ``linear``    1 / s: the pre-training range at a higher resolution (Chen et al., "Extending
                  Context Window of Large Language Models via Positional Interpolation", 2023)
    ``ntk``       s ** (-k / (K - 1)) for the k-th of K frequencies of an axis: the highest stays,
                  the lowest is divided by s. The same as theta * s ** (K / (K - 1)) (bloc97,
                  "NTK-aware scaled RoPE", 2023). Only for frequencies that come from a theta.
    ``by_parts``  by its periods across the pre-training grid, the length of (F_x G_x, F_y G_y) over
                  2 pi: 1 / s up to ``alpha`` periods, 1 from ``beta``, a ramp between (Peng et al.,
                  "YaRN", ICLR 2024, section 3.2). A learned vector keeps its direction where both
                  axes grow alike. With ``ntk``, what is not left at 1 goes from ``linear`` up to
                  its first number of periods to ``ntk`` from its second (Issachar et al., "DyPE",
                  2025, code: (0.75, 1.25) with ``alpha`` 2 and ``beta`` 16)
    ============  ==================================================================================

    ===========  ===================================================================================
    temperature  scores are multiplied by
    ===========  ===================================================================================
    None         1
    ``log``      log(S N) / log(N), N = G_x G_y tokens in pre-training, S = s_x s_y or 1 (Chiang and
                 Cholak, "Overcoming a Theoretical Limitation of Self-Attention", ACL 2022)
    ``yarn``     (0.1 log(sqrt(S)) + 1) ** 2 (Peng et al., section 3.4; the mean side for a length)
    ===========  ===================================================================================

    Checked in test_scaling.py: against a theta that is changed, positions that are divided,
    and the formulas in float64; a factor of 1 changes no bit.

    Attributes:
        grid: (height, width) of pre-training, in patches; of fine-tuned weights the one that the
            fine-tuning had without a scaling.
        type: see above.
        factor: s, a number or (height, width); None: from the grid of each input, 1 where that is
            no larger than ``grid``.
        alpha, beta: periods, of ``by_parts``. The defaults are as good as any of the seven pairs
            in docs/research/scaling_study; YaRN's own 32 are more than a grid of 14 patches shows.
        temperature: see above.
        ntk: periods, of ``by_parts``, or None; where the type ``ntk`` is allowed. It was no better
            in docs/research/scaling_study/wider.md.

    Raises:
        ValueError: a value that is not allowed, named ``rope_scaling``.
    """

    grid: tuple[int, int]
    type: ScalingType
    factor: float | tuple[float, float] | None = None
    alpha: float = 1.0
    beta: float = 2.0
    temperature: TemperatureType | None = None
    ntk: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, 'grid', checked_size('rope_scaling: grid', self.grid))
        check_choice('rope_scaling: type', self.type, get_args(ScalingType))
        if self.factor is not None:
            given = self.factor
            factors = (
                tuple(given) if isinstance(given, (tuple, list)) else (given, given)
            )
            if len(factors) != 2:
                refuse('rope_scaling: factor', self.factor, 'a number or two of them')
            for factor in factors:
                checked_number('rope_scaling: factor', factor, above=0)
            object.__setattr__(self, 'factor', factors)
        checked_number('rope_scaling: alpha', self.alpha, 0)
        checked_number('rope_scaling: beta', self.beta, above=self.alpha)
        if self.ntk is not None:
            if self.type != 'by_parts' or len(self.ntk) != 2:
                refuse('rope_scaling: ntk', self.ntk, "two periods, of type 'by_parts'")
            low = checked_number('rope_scaling: ntk', self.ntk[0], 0)
            high = checked_number('rope_scaling: ntk', self.ntk[1], above=low)
            object.__setattr__(self, 'ntk', (low, high))
        if self.temperature is not None:
            check_choice(
                'rope_scaling: temperature', self.temperature, get_args(TemperatureType)
            )

    @property
    def changes(self) -> bool:
        """True if frequencies or scores of attention are changed on some grid."""
        return self.type != 'none' or self.temperature is not None

    @property
    def has_ntk(self) -> bool:
        """True if frequencies are changed as by another theta."""
        return self.type == 'ntk' or self.ntk is not None

    def factors(self, height: int, width: int) -> tuple[float, float]:
        """(s_y, s_x) of a grid."""
        if isinstance(self.factor, tuple):
            return self.factor
        return larger(height / self.grid[0], 1.0), larger(width / self.grid[1], 1.0)

    def scale(self, freqs: Tensor, height: int, width: int) -> Tensor:
        """The frequencies [2, ..., P] for a grid, x at index 0; differentiable in ``freqs``."""
        if self.type == 'none':
            return freqs
        s_y, s_x = self.factors(height, width)
        x_factor, y_factor = (self.factor_of(freqs.detach(), s) for s in (s_x, s_y))
        return torch.stack([freqs[0] * x_factor, freqs[1] * y_factor])

    def factor_of(self, freqs: Tensor, s: float) -> Tensor | float:
        """The factor of the frequencies of an axis that is s times larger: [..., P] or a number."""
        if self.type == 'linear':
            return 1 / s
        if self.type == 'ntk':
            return ntk_factor(freqs, s)
        periods = torch.hypot(freqs[0] * self.grid[1], freqs[1] * self.grid[0]) / (
            2 * math.pi
        )
        unchanged = ramp(periods, self.alpha, self.beta)
        least: Tensor | float = 1 / s
        if self.ntk is not None:
            least = least + ramp(periods, *self.ntk) * (ntk_factor(freqs, s) - least)
        return 1 - (1 - unchanged) * (1 - least)

    def attention_scale(self, height: int, width: int) -> float:
        """The factor by which ``temperature`` multiplies the scores of attention on a grid.

        A number: a model that torch.jit.trace made keeps the factor of the size it was traced at.
        """
        if self.temperature is None:
            return 1.0
        s_y, s_x = self.factors(height, width)
        growth = math.log(max(1.0, s_x * s_y))  # log S
        if self.temperature == 'yarn':
            return (0.1 * growth / 2 + 1) ** 2
        return 1 + growth / math.log(max(2, self.grid[0] * self.grid[1]))


def ramp(periods: Tensor, low: float, high: float) -> Tensor:
    """From 0 up to ``low`` periods to 1 from ``high``."""
    return ((periods - low) / (high - low)).clamp(0, 1)


def ntk_factor(freqs: Tensor, s: float) -> Tensor:
    """The factor of ``ntk`` of the frequencies [2, 1, P] of an axis that is s times larger."""
    number = freqs.shape[-1] // 2  # K
    k = torch.arange(number, device=freqs.device, dtype=freqs.dtype).repeat(2)
    return s ** (-k / max(number - 1, 1))


def build_scaling(
    settings: dict | RopeScaling | None, grid: tuple[int, int]
) -> RopeScaling | None:
    """The scaling that ``rope_scaling`` of a config describes.

    Args:
        settings: attributes of ``RopeScaling``, or None.
        grid: of the pre-training, where they have none.

    Raises:
        ValueError: an unknown setting, or a value that is not allowed.
    """
    if settings is None or isinstance(settings, RopeScaling):
        return settings
    known = [field.name for field in fields(RopeScaling)]
    if 'type' not in checked_settings('rope_scaling', settings, known):
        raise ValueError(f'rope_scaling needs a type, got {settings}')
    return RopeScaling(**{'grid': grid, **settings})
