"""Sizes are (height, width), and arithmetic with sides that are numbers, symbols or tensors."""

from typing import TypeVar

import torch
from torch import Tensor

Size = tuple[int, int]  # in tokens
ImageSize = tuple[int, int]  # in pixels
Number = TypeVar('Number', int, float)


def larger(a: Number, b: Number) -> Number:
    """Return the larger of two numbers, without a branch, which would fix sizes in a traced model.

    Sizes are symbols in torch.export, and tensors in torch.jit.trace, which ``torch.sym_max`` does
    not take.
    """
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return torch.maximum(torch.as_tensor(a), torch.as_tensor(b))
    return torch.sym_max(a, b)


def smaller(a: Number, b: Number) -> Number:
    """Return the smaller of two numbers, see ``larger``."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return torch.minimum(torch.as_tensor(a), torch.as_tensor(b))
    return torch.sym_min(a, b)


def tile_starts(length: int, tile: int, overlap: int) -> list[int]:
    """First pixels of the tiles along an axis of ``length`` pixels.

    Raises:
        ValueError: no tile, or an overlap that leaves no step from one tile to the next.
    """
    if tile < 1 or not 0 <= overlap < tile:
        raise ValueError(
            f'tile {tile}, overlap {overlap}: a tile has 1 pixel or more, and the '
            'overlap is 0 or more and less than a tile'
        )
    if length <= tile:
        return [0]
    steps = -(-(length - tile) // (tile - overlap))
    return [step * (length - tile) // steps for step in range(steps + 1)]
