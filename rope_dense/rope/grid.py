"""Token coordinates. x is the column and y the row, both counted from 0 at the top left token."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal, get_args

import torch
from torch import Tensor

CoordinateType = Literal['index', 'centres', 'corners']
Normalization = Literal['separate', 'min', 'max']


@dataclass(frozen=True)
class Coordinates:
    """Where the tokens of a grid are: a position for each of its columns and rows.

    ===========  ===================================================================================
    type         position of the n-th of N columns; rows alike
    ===========  ===================================================================================
    ``index``    n + offset (Heo et al., section 3.2; offset 1 in Perception Encoder). With a
                 ``reference`` grid (n + offset) G / N: the range of G patches whatever the size of
                 the image (EVA-02, Perception Encoder)
    ``centres``  2 (n + 1/2) / M - 1, in [-1, 1] (DINOv3). M is N (``normalize='separate'``) or the
                 shorter (``'min'``) or longer (``'max'``) side of the grid
    ``corners``  2 n / (N - 1) - 1, from -1 to 1
    ===========  ===================================================================================

    In training, positions are augmented: one draw for a grid, so for a whole batch. In this order,
    each only if it is set: both axes are shifted by U[-shift, shift] each, multiplied by
    exp U[-log jitter, log jitter] each, and multiplied by one exp U[-log rescale, log rescale]
    together (DINOv3, which draws anew for each block). Checked in tests/test_frequencies.py against
    timm's modules, draws included.

    Attributes:
        type, normalize: see above.
        offset: of ``index``.
        reference: G of ``index``, a number of patches or (height, width); None leaves the index.
        shift: in the unit of the positions; jitter, rescale: factors of 1 or more. None for none.

    Raises:
        ValueError: a value that is not allowed, named ``coordinates``.
    """

    type: CoordinateType = 'index'
    offset: float = 0.0
    reference: int | tuple[int, int] | None = None
    normalize: Normalization = 'separate'
    shift: float | None = None
    jitter: float | None = None
    rescale: float | None = None

    def __post_init__(self) -> None:
        for name, allowed in (('type', CoordinateType), ('normalize', Normalization)):
            value = getattr(self, name)
            if value not in get_args(allowed):
                raise ValueError(
                    f'coordinates: {name} must be one of {get_args(allowed)}, got {value!r}'
                )
        if self.type != 'index' and (self.offset or self.reference is not None):
            raise ValueError(
                f"coordinates: offset and reference belong to type 'index', got {self.type!r}"
            )
        if self.type != 'centres' and self.normalize != 'separate':
            raise ValueError(
                f"coordinates: normalize={self.normalize!r} belongs to type 'centres', "
                f'got {self.type!r}'
            )
        sides = self.reference_grid
        if sides is not None and (len(sides) != 2 or min(sides) < 1):
            raise ValueError(
                'coordinates: reference must be a number of patches, two of them (height, width) '
                f'or None, got {self.reference!r}'
            )
        for name, least in (('shift', 0), ('jitter', 1), ('rescale', 1)):
            value = getattr(self, name)
            if value is not None and not least <= value < math.inf:
                raise ValueError(f'coordinates: {name} must be {least} or more, got {value!r}')

    @property
    def reference_grid(self) -> tuple[int, ...] | None:
        """``reference`` as (height, width)."""
        if self.reference is None or isinstance(self.reference, (tuple, list)):
            return self.reference and tuple(self.reference)
        return self.reference, self.reference

    @property
    def random(self) -> bool:
        """Whether positions are augmented in training."""
        return any(value is not None for value in (self.shift, self.jitter, self.rescale))

    @property
    def fit_the_grid(self) -> bool:
        """Whether every grid covers the same range, so that a larger one is sampled finer."""
        return self.type != 'index' or self.reference is not None

    def positions(
        self,
        *,
        height: int,
        width: int,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        augment: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Positions x [W] of the columns and y [H] of the rows.

        A window needs no coordinates of its own: attention scores depend on differences of
        positions only, so the grid of one window serves all windows of an image.

        Raises:
            ValueError: ``height`` or ``width`` is less than 1.
        """
        if height < 1 or width < 1:
            raise ValueError(
                f'a grid needs height >= 1 and width >= 1, got height={height}, width={width}'
            )
        y, x = (torch.arange(side, device=device, dtype=dtype) for side in (height, width))
        if self.type == 'corners':
            y, x = (torch.linspace(-1, 1, len(n), device=device, dtype=dtype) for n in (y, x))
        elif self.type == 'centres':
            side = {'min': min, 'max': max}.get(self.normalize)
            sides = (height, width) if side is None else (side(height, width),) * 2
            y, x = (2 * ((n + 0.5) / side) - 1 for n, side in zip((y, x), sides, strict=True))
        else:
            y, x = y + self.offset, x + self.offset
            if self.reference_grid is not None:
                y = y / height * self.reference_grid[0]
                x = x / width * self.reference_grid[1]
        return self.augmented(x, y) if augment else (x, y)

    def augmented(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Positions after one draw of the augmentation."""
        if self.shift is not None:
            along_y, along_x = uniform(x, 2, self.shift)
            x, y = x + along_x, y + along_y
        if self.jitter is not None:
            along_y, along_x = uniform(x, 2, math.log(self.jitter)).exp()
            x, y = x * along_x, y * along_y
        if self.rescale is not None:
            factor = uniform(x, 1, math.log(self.rescale)).exp()
            x, y = x * factor, y * factor
        return x, y


def build_coordinates(cfg: dict) -> Coordinates:
    """The coordinates that a config describes; {} is the patch index.

    Raises:
        ValueError: an unknown setting, or a value that is not allowed.
    """
    known = [field.name for field in fields(Coordinates)]
    if unknown := sorted(set(cfg) - set(known)):
        raise ValueError(f'coordinates has {unknown}, allowed are {known}')
    return Coordinates(**cfg)


def uniform(like: Tensor, size: int, bound: float) -> Tensor:
    """[size] drawn from U[-bound, bound]."""
    return like.new_empty(size).uniform_(-bound, bound)
