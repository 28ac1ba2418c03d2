"""Weighted sums over rectangles of cells of feature maps, in bags of different sizes.

Letters: R regions with S x S' places each (S in a column), K cells of a place in a row or column,
C channels, N bags, M items of all bags.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Taps:
    """Rows (or columns) of a map that contribute to places of regions.

    Attributes:
        index: [R, S, K], of the rows.
        weight: [R, S, K].
        count: [R, S], the rows in use; those behind them are ignored.
    """

    index: Tensor
    weight: Tensor
    count: Tensor


@dataclass(frozen=True, eq=False)
class Bags:
    """A sparse matrix from the cells of all maps to bags.

    Attributes:
        cell: [M], indices of cells, bag after bag.
        weight: [M].
        count: [N], cells of each bag.
    """

    cell: Tensor
    weight: Tensor
    count: Tensor

    def sums(self, cells: Tensor) -> Tensor:
        """Weighted sums [N, C] of cells [cells of all maps, C]."""
        return bag_sums(cells, self.cell, self.weight, self.count)

    def spread(self, values: Tensor, num_cells: int) -> Tensor:
        """The transpose of ``sums``: values of bags [N, C] to cells [num_cells, C]."""
        cell, order = self.cell.sort()
        bag = torch.repeat_interleave(self.count)[order]
        count = torch.bincount(cell, minlength=num_cells)
        return bag_sums(values, bag, self.weight[order], count)


def rectangles(
    first_cell: Tensor,
    rows: Taps,
    columns: Taps,
    width: int,
) -> Bags:
    """A bag for each place (s, s') of a region: rows of s, columns of s'; weights are multiplied.

    Args:
        first_cell: [R], index of the first cell of the region's map, which is stored row by row.
        rows: of S places.
        columns: of S' places.
        width: columns of the map.
    """
    _, height_places, num_rows = rows.index.shape
    _, width_places, num_columns = columns.index.shape
    row_count = rows.count.repeat_interleave(width_places, 1).flatten()  # [R S S' = N]
    column_count = columns.count.repeat(1, height_places).flatten()  # [N]
    place = torch.arange(columns.count.numel(), device=first_cell.device)
    place = place.view_as(columns.count)
    column_place = place.repeat(1, height_places).flatten()  # [N]

    bag, row = bag_items(row_count)  # a line: one row of a bag
    row = bag // width_places * num_rows + row
    row_cell = rows.index * width + first_cell[:, None, None]
    line_cell = row_cell.flatten()[row]
    line_weight = rows.weight.flatten()[row]

    line, column = bag_items(column_count[bag])
    first_column = column_place[bag] * num_columns
    column = first_column[line] + column
    cell = columns.index.flatten()[column] + line_cell[line]
    weight = columns.weight.flatten()[column] * line_weight[line]
    return Bags(cell, weight, row_count * column_count)


def bag_items(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Bag [M] of each item and its position [M] in the bag, from the items of each bag [N]."""
    bag = torch.repeat_interleave(counts)
    first = counts.cumsum(0) - counts
    return bag, torch.arange(len(bag), device=counts.device) - first[bag]


def bag_sums(
    values: Tensor,
    index: Tensor,
    weight: Tensor,
    count: Tensor,
) -> Tensor:
    """Weighted sums [N, C] of rows of values [rows, C], a bag of ``count`` [N] rows each."""
    first = count.cumsum(0) - count
    return F.embedding_bag(index, values, first, mode='sum', per_sample_weights=weight)


def at_least_float32(x: Tensor) -> Tensor:
    """A tensor in the type to compute in: its own, or float32 for half precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def as_cells(maps: Tensor) -> Tensor:
    """Maps [B, C, H, W] to their cells [B H W, C], in the type to compute in."""
    return at_least_float32(maps.permute(0, 2, 3, 1).flatten(0, 2)).contiguous()


def row_slices(x: Tensor, size: int) -> Iterator[slice]:
    """Slices of ``size`` rows."""
    return (slice(start, start + size) for start in range(0, len(x), size))
