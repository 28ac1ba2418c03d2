"""Attention of each token to its neighbourhood, dilated or not, and the plan of its tiles.

Letters: B images, H x W token grid, H' x W' padded, N' = H' W' tokens, K x K tokens of a
neighbourhood, d dilation, h heads, D channels of a head, C = h D, t tiles, n queries and m keys of
a tile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..rope import GridRoPE
from ..rope.rotation import rotate_packed
from ..utils.memo import is_tracing, memo, on_host
from ..utils.sizes import Size, larger
from ..utils.validation import checked_size, refuse
from . import natten_backend
from .attention import AttentionLayers, softmax_scale
from .layers import may_differ, pad_bottom_right, resize_grid
from .position_bias import bias_table, offset_counts

Backend = Literal['auto', 'torch', 'natten']


class NeighbourAttention(AttentionLayers):
    """Attention of each token of a grid to K x K tokens around it; see ``neighbour_plan``.

    Queries and keys are rotated before, by positions in the grid without its padding, so any rotary
    embedding works with any implementation: tiles through PyTorch's scaled_dot_product_attention,
    or NATTEN's fused kernel ``na2d``. Checked in test_neighbours.py against attention token by
    token in float64, with gradients, and against NATTEN.

    Args:
        backend: 'torch', 'natten', or 'auto' for NATTEN on a CUDA device where it can be used.
        others: see ``AttentionLayers``; without prefix tokens.

    Raises:
        ValueError: ``backend='natten'`` where NATTEN is not installed.
    """

    def __init__(self, *args: Any, backend: Backend = 'auto', **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if isinstance(self.rope, GridRoPE):  # of the grid, not of the padded one
            self.rope.coordinates = replace(self.rope.coordinates, windows='map')
        self.backend = backend
        if backend == 'natten' and find_spec('natten') is None:
            refuse('backend', backend, f"'auto' or 'torch': {natten_backend.MISSING}")

    def forward(
        self, x: Tensor, grid: Size, plan: NeighbourPlan, mask: None = None
    ) -> Tensor:
        """Attend within neighbourhoods.

        Args:
            x: [B, H W, C].
            grid: (H, W).
            plan: of the neighbourhoods.
            mask: None.

        Returns:
            [B, H W, C].

        Raises:
            ValueError: a mask.
        """
        if mask is not None:
            raise ValueError('mask must be None: a neighbourhood is fixed by its plan')
        rotary = None
        if self.rope is not None:  # the padded grid is a window of that size
            padded = plan.padded if may_differ(plan.padded, plan.grid) else None
            rotary = self.rope(x, plan.grid, padded)
            if rotary.angles.ndim == 4:  # of each image
                rotary = replace(rotary, angles=plan.pad(rotary.angles))
        # [B, N', 3, h, D]
        qkv = self.qkv(plan.pad(x)).unflatten(-1, (3, self.num_heads, -1))
        scale = softmax_scale(qkv, rotary)
        qkv = rotate_packed(qkv, rotary).unflatten(1, plan.padded)
        if self.is_fused(qkv):
            out = natten_backend.attend(
                qkv, plan.grid, plan.kernel_size, plan.dilation, scale
            )
        else:
            out = self.attend_tiles(qkv, plan, scale)
        return self.proj(self.norm(out))  # [B, H W, C]

    def is_fused(self, qkv: Tensor) -> bool:
        """Return True if NATTEN computes attention."""
        if self.backend != 'auto':
            return self.backend == 'natten'
        return not is_tracing() and qkv.is_cuda and natten_backend.can_attend(qkv)

    def attend_tiles(self, qkv: Tensor, plan: NeighbourPlan, scale: float) -> Tensor:
        """Rotated queries, keys and values [B, H', W', 3, h, D] to [B, H W, C]."""
        batch, heads = qkv.shape[0], qkv.shape[4]
        (q,) = plan.split_queries(qkv[:, :, :, :1])  # [t, B h, n, D]
        k, v = plan.split_keys(qkv[:, :, :, 1:])  # [t, B h, m, D] each
        mask = self.mask(plan, batch, q.dtype)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
        return plan.merge_tiles(out, batch, heads)

    def mask(self, plan: NeighbourPlan, batch: int, dtype: torch.dtype) -> Tensor:
        """[t, B h or 1, n, m]: bool, which keys are neighbours, or values added to the scores."""
        if is_tracing():  # one head in all would be a case of its own
            return plan.mask.expand(-1, batch * self.num_heads, -1, -1)
        return plan.mask


class TableBiasNeighbourAttention(NeighbourAttention):
    """Neighbourhood attention with a learned value for each head and offset of a neighbour.

    The table is in the form of ``TableBiasAttention``: row-major over offsets query - key, in steps
    of the dilation. NATTEN's fused kernels know no bias, so tiles are used.

    Args:
        bias_kernel: K that the table is made for, of rows and columns; for others it is resized
            (bicubic), as SHI-Labs did for their 11 x 11 models.

    Raises:
        ValueError: ``backend='natten'``.
    """

    def __init__(self, *args: Any, bias_kernel: Size, **kwargs: Any) -> None:
        if kwargs.get('backend') == 'natten':
            refuse(
                'backend',
                'natten',
                "'auto' or 'torch' with a bias (NATTEN's fused kernels have no bias, and "
                'from version 0.20 on none has)',
            )
        super().__init__(*args, **kwargs)
        self.bias_kernel = bias_kernel
        self.relative_position_bias_table = bias_table(bias_kernel, self.num_heads)

    def is_fused(self, qkv: Tensor) -> bool:
        return False

    def mask(self, plan: NeighbourPlan, batch: int, dtype: torch.dtype) -> Tensor:
        old, new = offset_counts(self.bias_kernel), offset_counts(plan.kernel_size)
        table = resize_grid(self.relative_position_bias_table[None], old, new)[0]
        bias = plan.bias(table.T.unflatten(1, new).to(dtype))  # [t, h, n, m]
        return bias.repeat(1, batch, 1, 1)


def build_neighbour_attention(
    attention: dict | None, pretrain_kernel_size: Size, **layers: Any
) -> NeighbourAttention:
    """Build the attention of one block from the config ``attention``, or None for no bias.

    ``layers`` are arguments of ``NeighbourAttention``. ValueError for another type than
    'TableBias', whose tables are for ``pretrain_kernel_size``.
    """
    if attention is None:
        return NeighbourAttention(**layers)
    if attention != dict(type='TableBias'):
        refuse('attention', attention, "None or dict(type='TableBias')")
    return TableBiasNeighbourAttention(bias_kernel=pretrain_kernel_size, **layers)


@dataclass(frozen=True, eq=False)
class AxisTiles:
    """The rows or the columns of the tiles.

    Tokens whose positions are equal modulo d are a group, and a tile has consecutive tokens of one.

    Attributes:
        queries: [t, n] positions in the padded grid; the last ones of a group may repeat.
        keys: [t, m] positions of all their neighbours; the last ones may repeat.
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
        (rows, height), (columns, width) = (
            self.rows.queries.shape,
            self.columns.queries.shape,
        )
        x = tiles.unflatten(2, (height, width)).unflatten(1, (batch, heads))
        # [B, ., ., ., ., h, D]
        x = x.unflatten(0, (rows, columns)).permute(2, 0, 4, 1, 5, 3, 6)
        row, row_place = self.rows.tile[:, None], self.rows.place[:, None]
        # [B, H, W, h, D]
        x = x[:, row, row_place, self.columns.tile, self.columns.place]
        return x.flatten(3).flatten(1, 2)

    def bias(self, table: Tensor) -> Tensor:
        """Gather a table [h, 2 K - 1, 2 K - 1] of offsets query - key for the pairs of each tile.

        Returns [t, h, n, m]; -inf for pairs that are no neighbours.
        """
        rows, columns = self.rows.offsets, self.columns.offsets
        bias = table[
            :, rows[:, None, :, None, :, None], columns[None, :, None, :, None, :]
        ]
        bias = bias.permute(1, 2, 0, 3, 4, 5, 6).contiguous()  # [., ., h, n, n, m, m]
        bias = bias.flatten(5).flatten(3, 4).flatten(0, 1)
        return bias.masked_fill(~self.mask, -torch.inf)


@memo
def neighbour_plan(
    grid: Size,
    kernel_size: Size,
    dilation: int,
    *,
    uniform: bool = False,
    device: torch.device,
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
    height, width = (
        larger(side, kernel * dilation)
        for side, kernel in zip(grid, kernel_size, strict=True)
    )
    padded = height, width
    settings: dict[str, Any] = dict(fixed=uniform or is_tracing(), device=device)
    rows, columns = (
        axis_tiles(axis, *sides, dilation, **settings)
        for axis, sides in enumerate(zip(grid, padded, kernel_size, strict=True))
    )
    near = (
        rows.near[:, None, :, None, :, None] & columns.near[None, :, None, :, None, :]
    )
    mask = near.flatten(4).flatten(2, 3).flatten(0, 1)[:, None]
    return NeighbourPlan(kernel_size, dilation, grid, padded, rows, columns, mask)


@memo
@on_host
def axis_tiles(
    axis: int,
    length: int,
    padded: int,
    kernel: int,
    dilation: int,
    *,
    fixed: bool,
    device: torch.device,
) -> AxisTiles:
    """The tiles of one axis.

    Args:
        axis: 0 for rows, 1 for columns. If both had the same tensors, which are inputs of compiled
            blocks, these would be compiled anew for a square.
        length: tokens of the axis; ``padded`` with padding.
        kernel, dilation: K and d.
        fixed: tiles of a size that does not depend on ``length``.
        device: of the indexes.
    """
    arange = partial(torch.arange, device=device)
    longest = (padded + dilation - 1) // dilation  # tokens of a group
    num_queries, num_keys = kernel, 2 * kernel - 1
    if not fixed:  # as little padding as possible
        num_queries = -(-longest // -(-longest // kernel))
        num_keys = min(num_queries + kernel - 1, longest)
    tiles = (longest + num_queries - 1) // num_queries  # of a group
    tile = arange(dilation * tiles)[:, None]
    group = tile // tiles  # [t, 1]
    size = (padded - group + dilation - 1) // dilation  # [t, 1] tokens of the group
    # Not %, of which ONNX has none by a size.
    first = (tile - group * tiles) * num_queries
    query = first + arange(num_queries)  # [t, n], position in the group
    start = torch.minimum((query - kernel // 2).clip(0), size - kernel)  # [t, n]
    key = start[:, :1] + arange(num_keys)  # [t, m]
    after_start = key[:, None] - start[:, :, None]  # [t, n, m]
    position = arange(length)
    in_group = position // dilation
    return AxisTiles(
        queries=group + dilation * torch.minimum(query, size - 1),
        keys=group + dilation * torch.minimum(key, size - 1),
        tile=position % dilation * tiles + in_group // num_queries,
        place=in_group % num_queries,
        near=(after_start >= 0) & (after_start < kernel),
        offsets=(query[:, :, None] - key[:, None] + kernel - 1).clip(0, 2 * kernel - 2),
    )


def split_tiles(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Gather [B, H', W', s, h, D] into tiles [s, t, B h, n, D] of rows and columns [., n].

    Images and heads are one axis, so that the mask of a tile is the same along it.
    """
    x = x.index_select(1, rows.flatten()).index_select(2, columns.flatten())
    # [B, ., n, ., n, s, h, D]
    x = x.unflatten(2, columns.shape).unflatten(1, rows.shape)
    x = x.permute(5, 1, 3, 0, 6, 2, 4, 7).contiguous()  # [s, ., ., B, h, n, n, D]
    return x.flatten(5, 6).flatten(3, 4).flatten(1, 2)


def checked_kernel_size(name: str, value: object) -> Size:
    """Return (height, width), both odd, from one or two numbers; ValueError for anything else."""
    sides = checked_size(name, value)
    if any(side % 2 == 0 for side in sides):
        refuse(
            name, value, 'odd, so that a token is in the middle of its neighbourhood'
        )
    return sides
