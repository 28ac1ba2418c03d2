"""Positions of the tokens that attention computes with.

Letters: B images, H x W token grid, N tokens (prefix and grid); G groups of tokens that attend to
each other (images, windows, or tiles of neighbourhoods), n queries and m keys of a group, t tiles.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from rope_dense.backbones.attention import AttentionLayers, GlobalPrefixAttention
from rope_dense.backbones.block import Plan
from rope_dense.backbones.neighbours import AxisTiles, NeighbourPlan
from rope_dense.utils.sizes import Size

Groups = list[
    tuple[Tensor, Tensor]
]  # queries [G, n, 4] and keys [G, m, 4], see ``token_table``


def token_groups(
    attn: AttentionLayers, x: Tensor, grid: Size, plan: Plan | None
) -> Groups:
    """Queries and keys of each call of ``scaled_dot_product_attention``.

    Takes the arguments of an attention's ``forward``.
    """
    tokens = token_table(x, grid, attn.num_prefix_tokens)
    if isinstance(plan, NeighbourPlan):
        return [tile_groups(tokens[0], plan)]
    if plan is None:
        return [(tokens, tokens)]
    if not isinstance(attn, GlobalPrefixAttention):
        windows = plan.partition(tokens)
        return [(windows, windows)]
    prefix = tokens[:, : attn.num_prefix_tokens]
    windows = plan.partition(tokens[:, attn.num_prefix_tokens :])
    shared = prefix.repeat(plan.num_windows, 1, 1)
    return [(windows, torch.cat([shared, windows], 1)), (prefix, tokens)]


def token_table(x: Tensor, grid: Size, num_prefix_tokens: int) -> Tensor:
    """Return four values of each token, [B, N, 4]; padding is zero.

    x and y, in tokens; 1 if it has a position, 0 if it is a prefix token; its weight as a query,
    which the copies of a prefix token share.
    """
    height, width = grid
    index = torch.arange(height * width, device=x.device)
    ones = torch.ones_like(index)
    table = torch.stack([index % width, index // width, ones, ones], -1).float()
    if before := x.shape[1] - height * width:
        table = F.pad(table, (0, 0, before, 0))
        table[:before, 3] = num_prefix_tokens / before
    return table.expand(x.shape[0], -1, -1)


def tile_groups(tokens: Tensor, plan: NeighbourPlan) -> tuple[Tensor, Tensor]:
    """Queries [t, n, 4] and keys [t, m, 4] of the tiles, of a table [H W, 4]."""
    table = plan.pad(tokens[None]).unflatten(1, plan.padded)[:, :, :, None, None]
    queries, keys = plan.split_queries(table)[0, :, 0], plan.split_keys(table)[0, :, 0]
    rows, columns = query_mask(plan.rows), query_mask(plan.columns)
    weights = (
        (rows[:, None, :, None] * columns[None, :, None, :]).flatten(2).flatten(0, 1)
    )
    return torch.cat([queries[..., :3], weights[..., None]], -1), keys


def query_mask(axis: AxisTiles) -> Tensor:
    """Return 1 where the tiles of an axis have a query, 0 for padding or a repetition, [t, n]."""
    weights = torch.zeros(axis.queries.shape, device=axis.queries.device)
    weights[axis.tile, axis.place] = 1
    return weights
