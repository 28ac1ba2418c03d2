"""Token coordinates: x is the column and y the row, both counted from 0 at the top left token."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal, get_args

import torch
from torch import Tensor

from ..utils.sizes import Size, larger, smaller
from ..utils.validation import check_choice, check_number, check_settings, check_size

CoordinateType = Literal['index', 'centres', 'corners']
Normalization = Literal['separate', 'min', 'max']
WindowStep = Literal['window', 'map']


@dataclass(frozen=True, repr=False)
class Coordinates:
    """Positions of the tokens of a grid.

    ===========  ===================================================================================
    type         position of the n-th of N columns; rows alike
    ===========  ===================================================================================
    ``index``    n + offset (Heo et al., section 3.2; offset 1 in Perception Encoder). With a
                 ``reference`` grid (n + offset) G / N: the range of G patches whatever the size of
                 the image (EVA-02, Perception Encoder)
    ``centres``  2 (n + 1/2) / M - 1, in [-1, 1] (DINOv3). M is N (``normalize='separate'``) or the
                 shorter (``'min'``) or longer (``'max'``) side of the grid
    ``corners``  2 n / (M - 1) - 1, from -1 to 1
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
        shift: in the unit of the positions; jitter, rescale: factors of 1 or more. None for none.

    Raises:
        ValueError: a value that is not allowed, named ``coordinates``.
    """

    type: CoordinateType = 'index'
    offset: float = 0.0
    reference: int | Size | None = None
    normalize: Normalization = 'separate'
    windows: WindowStep = 'window'
    shift: float | None = None
    jitter: float | None = None
    rescale: float | None = None

    def __post_init__(self) -> None:
        check_choice('coordinates: type', self.type, get_args(CoordinateType))
        check_choice('coordinates: normalize', self.normalize, get_args(Normalization))
        check_choice('coordinates: windows', self.windows, get_args(WindowStep))
        check_number('coordinates: offset', self.offset)
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
            grid = check_size('coordinates: reference', self.reference)
            object.__setattr__(self, 'reference', grid)
        for name, least in (('shift', 0), ('jitter', 1), ('rescale', 1)):
            value = getattr(self, name)
            if value is not None:
                check_number(f'coordinates: {name}', value, least)

    def __repr__(self) -> str:
        """The type, and what is not at its default."""
        others = ((field, getattr(self, field.name)) for field in fields(self)[1:])
        given = [f'{field.name}={value!r}' for field, value in others if value != field.default]
        return f'Coordinates({", ".join([f"type={self.type!r}", *given])})'

    @property
    def random(self) -> bool:
        """True if positions are augmented in training."""
        return any(value is not None for value in (self.shift, self.jitter, self.rescale))

    @property
    def is_normalized(self) -> bool:
        """True if every grid covers the same range, so that a larger one is sampled finer."""
        return self.type != 'index' or self.reference is not None

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

        A window needs no coordinates of its own: attention scores depend on differences of
        positions only, so the grid of one window serves all windows of an image.

        Args:
            height, width: of the tokens.
            grid: (height, width) of the grid that the tokens are the top left part of, N of the
                table; None if they are all of it.
            device, dtype: of the result.
        """
        y, x = (torch.arange(side, device=device, dtype=dtype) for side in (height, width))
        grid = (height, width) if grid is None else grid
        if self.normalize != 'separate':
            grid = ((smaller if self.normalize == 'min' else larger)(*grid),) * 2
        if self.type == 'corners':
            y, x = (2 * n / larger(side - 1, 1) - 1 for n, side in zip((y, x), grid, strict=True))
        elif self.type == 'centres':
            y, x = (2 * ((n + 0.5) / side) - 1 for n, side in zip((y, x), grid, strict=True))
        else:
            y, x = y + self.offset, x + self.offset
            if isinstance(self.reference, tuple):
                y, x = y / grid[0] * self.reference[0], x / grid[1] * self.reference[1]
        xy = torch.broadcast_tensors(x[None, :], y[:, None])  # [H, W] each
        return torch.stack(xy, -1).flatten(0, 1)

    def augmented(self, positions: Tensor) -> Tensor:
        """Positions [N, 2] after one draw of the augmentation."""

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
    """The coordinates that a config describes; None is the patch index.

    Raises:
        ValueError: an unknown setting, or a value that is not allowed.
    """
    known = [field.name for field in fields(Coordinates)]
    return Coordinates(**check_settings('coordinates', settings or {}, known))
