"""Neighbour plans: indexes that gather the tokens of a grid into tiles of queries and their keys.

Letters: B images, H x W token grid, H' x W' padded, K x K tokens of a neighbourhood, d dilation, h
heads, D channels of a head, C = h D, t tiles, n queries and m keys of a tile.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..utils.cache import Cache
from ..utils.sizes import Size, larger
from ..utils.tracing import is_tracing
from ..utils.validation import check_size, refuse
from .layers import pad_bottom_right
from .windows import WindowPlan


@dataclass(frozen=True, eq=False)
class AxisTiles:
    """The rows or the columns of the tiles.

    Tokens whose positions are equal modulo d are a group, and a tile has consecutive tokens of one.

    Attributes:
        queries: [t, n] positions in the padded grid; the last ones of a group may repeat.
        keys: [t, m] those of all neighbours; the last ones may repeat.
        tile, place: [H] where in ``queries`` each position of the grid is.
        near: [t, n, m] bool, which keys are neighbours of a query: K of them.
        offsets: [t, n, m] (query - key) / d + K - 1, of neighbours from 0 to 2 K - 2.
    """

    queries: Tensor
    keys: Tensor
    tile: Tensor
    place: Tensor
    near: Tensor
    offsets: Tensor


@dataclass(frozen=True, eq=False)
class NeighbourPlan:
    """Tiles of queries, with all that are neighbours of any of them as keys, and a mask.

    Keys of each query apart would be K**2 times the memory of the tokens. A tile has about as many
    queries as a neighbourhood has tokens, and (2 - 1 / K)**2 < 4 times as many keys.

    Attributes:
        kernel_size: K of rows and of columns.
        dilation: d.
        grid: (H, W).
        padded: (H', W'), K d at least.
        rows, columns: of the tiles.
        mask: [t, 1, n, m] bool, the neighbours of each query.
    """

    kernel_size: Size
    dilation: int
    grid: Size
    padded: Size
    rows: AxisTiles
    columns: AxisTiles
    mask: Tensor

    def pad(self, x: Tensor) -> Tensor:
        """Add zeros at the bottom and right: tokens [B, H W, ...] to [B, H' W', ...]."""
        sides = (new - old for new, old in zip(self.padded, self.grid, strict=True))
        return pad_bottom_right(x.unflatten(1, self.grid), 1, *sides).flatten(1, 2)

    def split_queries(self, x: Tensor) -> Tensor:
        """Gather [B, H', W', s, h, D] into tiles of queries [s, t, B h, n, D]."""
        return split_tiles(x, self.rows.queries, self.columns.queries)

    def split_keys(self, x: Tensor) -> Tensor:
        """Gather [B, H', W', s, h, D] into tiles of keys [s, t, B h, m, D]."""
        return split_tiles(x, self.rows.keys, self.columns.keys)

    def merge_tiles(self, tiles: Tensor, batch: int, heads: int) -> Tensor:
        """Gather the results of tiles [t, B h, n, D] into tokens [B, H W, C], without padding."""
        (rows, height), (columns, width) = self.rows.queries.shape, self.columns.queries.shape
        x = tiles.unflatten(2, (height, width)).unflatten(1, (batch, heads))
        x = x.unflatten(0, (rows, columns)).permute(2, 0, 4, 1, 5, 3, 6)  # [B, ., ., ., ., h, D]
        row, row_place = self.rows.tile[:, None], self.rows.place[:, None]
        x = x[:, row, row_place, self.columns.tile, self.columns.place]  # [B, H, W, h, D]
        return x.flatten(3).flatten(1, 2)

    def bias(self, table: Tensor) -> Tensor:
        """Gather a table of offsets query - key for the pairs of each tile.

        Args:
            table: [h, 2 K - 1, 2 K - 1].

        Returns:
            [t, h, n, m]; -inf for pairs that are no neighbours.
        """
        rows, columns = self.rows.offsets, self.columns.offsets
        bias = table[:, rows[:, None, :, None, :, None], columns[None, :, None, :, None, :]]
        bias = bias.permute(1, 2, 0, 3, 4, 5, 6).contiguous()  # [., ., h, n, n, m, m]
        bias = bias.flatten(5).flatten(3, 4).flatten(0, 1)
        return bias.masked_fill(~self.mask, -torch.inf)


Plan = WindowPlan | NeighbourPlan
PLANS: Cache[NeighbourPlan] = Cache()


def neighbour_plan(
    grid: Size, kernel_size: Size, dilation: int, *, uniform: bool = False, device: torch.device
) -> NeighbourPlan:
    """Return the plan for a grid. Works with symbolic sizes.

    A token attends to the K tokens of its group that are nearest in each axis: those around it, or,
    near an edge, the K next to the edge (Hassani et al., "Neighborhood Attention Transformer", CVPR
    2023; with dilation Hassani and Shi, "Dilated Neighborhood Attention Transformer", 2022). Grids
    of fewer than K d tokens are padded with zeros, which take part, as in the published code.

    Args:
        grid: (H, W).
        kernel_size: K of rows and of columns, odd.
        dilation: d.
        uniform: make tiles that have the same size for all grids, with more padding, so that
            compiled blocks share a graph.
        device: of the indexes.
    """
    fixed_tiles = uniform or is_tracing()

    def make() -> NeighbourPlan:
        height, width = (
            larger(side, kernel * dilation) for side, kernel in zip(grid, kernel_size, strict=True)
        )
        padded = height, width
        rows, columns = (
            axis_tiles(*sides, dilation, fixed_tiles, device)
            for sides in zip(grid, padded, kernel_size, strict=True)
        )
        near = rows.near[:, None, :, None, :, None] & columns.near[None, :, None, :, None, :]
        mask = near.flatten(4).flatten(2, 3).flatten(0, 1)[:, None]
        return NeighbourPlan(kernel_size, dilation, grid, padded, rows, columns, mask)

    return PLANS.get((grid, kernel_size, dilation, uniform), device, make)


def axis_tiles(
    length: int, padded: int, kernel: int, dilation: int, fixed: bool, device: torch.device
) -> AxisTiles:
    """Return the tiles of an axis of ``length`` tokens, ``padded`` with padding."""
    longest = (padded + dilation - 1) // dilation  # tokens of a group
    num_queries, num_keys = kernel, 2 * kernel - 1
    if not fixed:  # as little padding as possible
        num_queries = -(-longest // -(-longest // kernel))
        num_keys = min(num_queries + kernel - 1, longest)
    tiles = (longest + num_queries - 1) // num_queries  # of a group
    tile = torch.arange(dilation * tiles, device=device)[:, None]
    group = tile // tiles  # [t, 1]
    size = (padded - group + dilation - 1) // dilation  # [t, 1] tokens of the group
    first = (tile - group * tiles) * num_queries  # not %, of which ONNX has none by a size
    query = first + torch.arange(num_queries, device=device)  # [t, n], position in the group
    start = (query - kernel // 2).clamp(min=0).minimum(size - kernel)  # [t, n]
    key = start[:, :1] + torch.arange(num_keys, device=device)  # [t, m]
    after_start = key[:, None] - start[:, :, None]  # [t, n, m]
    position = torch.arange(length, device=device)
    in_group = position // dilation
    return AxisTiles(
        queries=group + dilation * query.minimum(size - 1),
        keys=group + dilation * key.minimum(size - 1),
        tile=position % dilation * tiles + in_group // num_queries,
        place=in_group % num_queries,
        near=(after_start >= 0) & (after_start < kernel),
        offsets=(query[:, :, None] - key[:, None] + kernel - 1).clamp(0, 2 * kernel - 2),
    )


def split_tiles(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Gather [B, H', W', s, h, D] into tiles [s, t, B h, n, D].

    Images and heads are one axis, so that the mask of a tile is the same along it.

    Args:
        x: see above.
        rows, columns: [., n] of the tiles.
    """
    x = x.index_select(1, rows.flatten()).index_select(2, columns.flatten())
    x = x.unflatten(2, columns.shape).unflatten(1, rows.shape)  # [B, ., n, ., n, s, h, D]
    x = x.permute(5, 1, 3, 0, 6, 2, 4, 7).contiguous()  # [s, ., ., B, h, n, n, D]
    return x.flatten(5, 6).flatten(3, 4).flatten(1, 2)


def check_kernel_size(name: str, value: object) -> Size:
    """Return (height, width), both odd, from one or two numbers.

    Raises:
        ValueError: anything else.
    """
    sides = check_size(name, value)
    if any(side % 2 == 0 for side in sides):
        refuse(name, value, 'odd, so that a token is in the middle of its neighbourhood')
    return sides
