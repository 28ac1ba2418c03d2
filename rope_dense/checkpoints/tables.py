"""Tables over positions or offsets of a checkpoint, on the grid of a model.

A table [.., entries, C] has no grid of its own, only a number of entries: H W positions of a grid
of H x W tokens, or (2 H - 1) (2 W - 1) offsets within a window of H x W tokens.
"""

import math
from itertools import count

from torch import Tensor

from ..backbones.base import BIAS_TABLE
from ..backbones.layers import resize_grid
from ..backbones.position_bias import offset_counts
from ..utils.sizes import Size
from .errors import CheckpointError


def find_grid(
    key: str, table: Tensor, new: Size, grid: Size | None = None
) -> Size | None:
    """The grid that a table covers: (rows, columns) of entries.

    A model with a square grid takes a square. A model with another grid takes a table of as many
    entries as its own to be over its own grid; else a grid of the same aspect, or a square.

    Args:
        key: of the table in the model.
        table: [.., entries, C].
        new: (rows, columns) of entries of the model's table.
        grid: (H, W) tokens of the grid or window in pre-training, which decides.

    Returns:
        None if no such grid has as many entries.

    Raises:
        CheckpointError: both a grid of the same aspect and a square have, or ``grid`` has not.
    """
    number = table.shape[-2]
    if grid is not None:
        given = in_entries(key, grid)
        if math.prod(given) != number:
            raise CheckpointError(
                f'{key} has {number} entries, grid={grid} has {given[0]} x {given[1]}'
            )
        return given
    side = math.isqrt(number)
    square = (side, side) if side * side == number else None
    if new[0] == new[1]:
        return square
    if math.prod(new) == number:
        return new
    scaled = same_aspect(key, number, table_grid(key, new))
    if scaled and square:
        first, second = table_grid(key, scaled), table_grid(key, square)
        raise CheckpointError(
            f'{key} has {number} entries, of a grid of {first} or of {second} tokens: set '
            f'grid={first} or grid={second} in init_cfg'
        )
    return scaled or square


def same_aspect(key: str, number: int, tokens: Size) -> Size | None:
    """The grid of ``number`` entries with the aspect of a grid of tokens; None without one."""
    divisor = math.gcd(*tokens)
    height, width = tokens[0] // divisor, tokens[1] // divisor
    for factor in count(1):
        grid = in_entries(key, (factor * height, factor * width))
        if math.prod(grid) >= number:
            break
    return grid if math.prod(grid) == number else None


def in_entries(key: str, tokens: Size) -> Size:
    """(rows, columns) of entries of a table over a grid or window of (H, W) tokens."""
    return offset_counts(tokens) if key.endswith(BIAS_TABLE) else tokens


def table_grid(key: str, entries: Size) -> Size:
    """(H, W) tokens of the grid or window of a table of (rows, columns) of entries."""
    rows, columns = entries
    if key.endswith(BIAS_TABLE):
        return (rows + 1) // 2, (columns + 1) // 2
    return entries


def has_entries_like(table: Tensor, expected: Tensor) -> bool:
    """True if two tables [.., entries, C] differ in their number of entries at most."""
    return (
        table.ndim > 1
        and table.ndim == expected.ndim
        and table.shape[-1] == expected.shape[-1]
    )


def resize_table(table: Tensor, old: Size, new: Size) -> Tensor:
    """A table [1, entries, C] or [entries, C] on another grid (bicubic)."""
    if table.ndim == 2:
        return resize_table(table[None], old, new)[0]
    return resize_grid(table, old, new)
