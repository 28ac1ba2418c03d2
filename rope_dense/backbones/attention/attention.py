"""Multi-head self-attention, global or in windows, with a rotary embedding or a position bias.

Letters: B images, H x W token grid, N tokens (prefix and grid), W windows, n tokens that attend to
each other (N, or those of a window and its prefix), P prefix tokens, h heads, D channels of a head,
C = h D.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...rope import Rotary, RotaryEmbedding, rotate
from ...rope.rotate import rotate_packed
from ...utils.cache import Cache
from ...utils.sizes import Size
from ...utils.tracing import is_tracing
from ..layers import PositionConv, TableResize, build_norm, pad_grid, resize_grid
from .windows import WindowPlan

QkvBias = bool | Literal['qv']
INDEXES: Cache[Tensor] = Cache()


class Attention(nn.Module):
    """Self-attention that rotates queries and keys.

    Args:
        embed_dims: C.
        num_heads: h.
        qkv_bias: whether the qkv projection has a bias; 'qv' for queries and values only. (A bias
            of unrotated keys adds the same to all scores of a query. A rotated one does not.)
        rope: rotary embedding, or None.
        num_prefix_tokens: tokens before those of the grid, which have no position.
        norm_cfg: of a norm before the output projection (EVA-02-CLIP), or None.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        qkv_bias: QkvBias = True,
        rope: RotaryEmbedding | None = None,
        num_prefix_tokens: int = 0,
        norm_cfg: dict | None = None,
    ) -> None:
        super().__init__()
        self.num_heads, self.num_prefix_tokens = num_heads, num_prefix_tokens
        self.qkv: nn.Linear
        if qkv_bias == 'qv':
            self.qkv = QVBiasLinear(embed_dims)
        else:
            self.qkv = nn.Linear(embed_dims, 3 * embed_dims, bias=qkv_bias)
        self.rope = rope
        self.norm = build_norm(norm_cfg, embed_dims) if norm_cfg else nn.Identity()
        self.proj = nn.Linear(embed_dims, embed_dims)

    def forward(
        self,
        x: Tensor,
        grid: Size,
        plan: WindowPlan | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Attend among all tokens of an image, or among those of a window.

        Args:
            x: [B, N, C].
            grid: (H, W) of the tokens after the prefix.
            plan: of the windows, each with copies of the prefix tokens, if there are any; None to
                attend globally.
            mask: [B, 1, N, N], false where a token (row) does not attend to another, of global
                attention; None to attend to all.

        Returns:
            [B, N, C].
        """
        qkv = self.qkv(x).unflatten(-1, (3, self.num_heads, -1))  # [B, N, 3, h, D]
        return self.proj(self.norm(self.mix(x, qkv, grid, plan, mask)))

    def mix(
        self, x: Tensor, qkv: Tensor, grid: Size, plan: WindowPlan | None, mask: Tensor | None
    ) -> Tensor:
        """What the tokens take from each other, [B, N, C], by their projection [B, N, 3, h, D]."""
        window_size = None if plan is None else plan.window_size
        rotary = None if self.rope is None else self.rope(x, grid, window_size)
        if plan is not None:
            padding = None if plan.is_padding is None else zero_projection(self.qkv, x)
            qkv = plan.partition(qkv, padding)  # [W, n, 3, h, D]
            rotary = in_windows(rotary, plan)
        q, k, v = rotate(qkv, rotary, self.num_prefix_tokens)  # [B or W, h, n, D]
        bias = self.bias(q, window_size or grid)
        out = attend(q, k, v, bias, score_scale(q, rotary), plan, mask)  # [B or W, n, C]
        return out if plan is None else plan.unpartition(out)

    def bias(self, q: Tensor, size: Size) -> Tensor | None:
        """What is added to the scaled scores of queries [B, h, n, D] in a grid or window of
        ``size``: [h, n, n] or [B, h, n, n]; None for nothing."""
        return None


class GlobalPrefixAttention(Attention):
    """Attention of a block in windows whose prefix tokens attend globally.

    A token of the grid attends to those of its window and to the prefix, a prefix token to all:
    global attention with a mask, with the positions of the whole grid, and without padding. Checked
    in tests/backbones/test_prefix_windows.py against just that, token by token.

    Args:
        others: see ``Attention``.
    """

    def mix(
        self, x: Tensor, qkv: Tensor, grid: Size, plan: WindowPlan | None, mask: Tensor | None
    ) -> Tensor:
        """See ``Attention.mix``; the windows of ``plan`` have ``num_shared`` prefix tokens and
        mask their padding."""
        if plan is None:
            return super().mix(x, qkv, grid, plan, mask)
        rotary = None if self.rope is None else self.rope(x, grid)
        qkv = rotate_packed(qkv, rotary, self.num_prefix_tokens)
        scale = score_scale(qkv, rotary)
        prefix, tokens = qkv[:, : self.num_prefix_tokens], qkv[:, self.num_prefix_tokens :]
        queries, others = plan.partition(tokens[:, :, 0]), plan.partition(tokens[:, :, 1:])
        shared = prefix[:, :, 1:].repeat(plan.num_windows, 1, 1, 1, 1)  # [W, P, 2, h, D]
        keys_values = torch.cat([shared, others], 1)  # [W, P + n, 2, h, D]
        windows = attend_packed(queries, keys_values, scale, plan)  # [W, n, C]
        prefix = attend_packed(prefix[:, :, 0], qkv[:, :, 1:], scale, None)
        return torch.cat([prefix, plan.unpartition(windows)], 1)  # [B, N, C]


class LocalPositionAttention(Attention):
    """Attention with ResFormer's local position embedding: a depth-wise convolution of the values,
    as a map of each head, that is added to the output of attention. Prefix tokens get nothing.

    Tian et al., "ResFormer: Scaling ViTs with Multi-Resolution Training" (CVPR 2023).
    All heads share the filters, which start at zero.

    Args:
        others: see ``Attention``.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.local = PositionConv(self.proj.in_features // self.num_heads)
        for parameter in self.local.parameters():
            nn.init.zeros_(parameter)

    def mix(
        self, x: Tensor, qkv: Tensor, grid: Size, plan: WindowPlan | None, mask: Tensor | None
    ) -> Tensor:
        """See ``Attention.mix``."""
        before = qkv.shape[1] - grid[0] * grid[1]
        values = qkv[:, before:, 2].permute(0, 2, 3, 1)  # [B, h, D, H W]
        local = self.local(values.flatten(0, 1).unflatten(2, grid)).flatten(2)  # [B h, D, H W]
        local = local.unflatten(0, (-1, self.num_heads)).permute(0, 3, 1, 2).flatten(2)
        return super().mix(x, qkv, grid, plan, mask) + F.pad(local, (0, 0, before, 0))


class TableBiasAttention(Attention):
    """Attention with Swin's relative position bias: a learned value for each head and offset.

    Args:
        bias_window: (height, width) of the window that the table is made for; for other windows it
            is resized.
        resize: 'bicubic', or 'zeros' for no bias between tokens that are further apart than in the
            table; for smaller windows its middle.
        others: see ``Attention``.
    """

    def __init__(
        self, *args: Any, bias_window: Size, resize: TableResize = 'bicubic', **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.bias_window, self.resize = bias_window, resize
        self.relative_position_bias_table = bias_table(bias_window, self.num_heads)

    def bias(self, q: Tensor, size: Size) -> Tensor:
        resized = resize_grid if self.resize == 'bicubic' else pad_grid
        table = self.relative_position_bias_table[None]
        table = resized(table, offset_grid(self.bias_window), offset_grid(size))[0]
        index = relative_position_index(*size, table.device)
        return table[index].permute(2, 0, 1)  # [h, n, n]


class DecomposedBiasAttention(Attention):
    """Attention with ViTDet's relative position bias: products of a query with a table entry for
    the row offset and with one for the column offset.

    Li et al., "Exploring Plain Vision Transformer Backbones for Object Detection" (ECCV 2022). The
    tables start at zero, and are resized (linear) to other grids.

    Args:
        bias_grid: (height, width) of the grid that the tables are made for.
        others: see ``Attention``.
    """

    def __init__(self, *args: Any, bias_grid: Size, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        head_dim = self.proj.in_features // self.num_heads
        self.rel_pos_h, self.rel_pos_w = (
            nn.Parameter(torch.zeros(2 * side - 1, head_dim)) for side in bias_grid
        )

    def bias(self, q: Tensor, size: Size) -> Tensor:
        rows_table = offset_table(self.rel_pos_h, size[0])  # [H, H, D]
        columns_table = offset_table(self.rel_pos_w, size[1])  # [W, W, D]
        q = q.unflatten(2, size)  # [B, h, H, W, D]
        rows = torch.einsum('bnhwd,hkd->bnhwk', q, rows_table)
        columns = torch.einsum('bnhwd,wkd->bnhwk', q, columns_table)
        return (rows[..., :, None] + columns[..., None, :]).flatten(4, 5).flatten(2, 3)


class QVBiasLinear(nn.Linear):
    """A qkv projection, [..., C] to [..., 3 C], with a bias for queries and values only."""

    def __init__(self, embed_dims: int) -> None:
        super().__init__(embed_dims, 3 * embed_dims, bias=False)
        self.q_bias = nn.Parameter(torch.zeros(embed_dims))
        self.v_bias = nn.Parameter(torch.zeros(embed_dims))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.packed_bias())

    def packed_bias(self) -> Tensor:
        """[3 C], zero for the keys."""
        return torch.cat([self.q_bias, torch.zeros_like(self.q_bias), self.v_bias])


def zero_projection(qkv: nn.Module, x: Tensor) -> Tensor | None:
    """[3 C], what the projection makes of a padding token, which is zero; None for zeros."""
    if isinstance(qkv, QVBiasLinear):
        return qkv.packed_bias()
    if isinstance(qkv, nn.Linear):
        return qkv.bias
    return qkv(x.new_zeros(1, x.shape[-1]))[0]  # whatever took its place, such as an adapter


def score_scale(q: Tensor, rotary: Rotary | None) -> float:
    """What scores of queries [..., D] are multiplied by."""
    return q.shape[-1] ** -0.5 * (1.0 if rotary is None else rotary.attention_scale)


def in_windows(rotary: Rotary | None, plan: WindowPlan) -> Rotary | None:
    """The angles of windows: those of each image go along with its tokens."""
    if rotary is None or rotary.angles.ndim == 3:  # of one window, the same for all
        return rotary
    angles = rotary.angles  # [B, H W, h, P]
    if plan.num_copies:  # which have no angles
        angles = F.pad(angles, (0, 0, 0, 0, plan.shape[1] - angles.shape[1], 0))
    angles = plan.partition(angles)[:, plan.num_copies :]  # [W, n, h, P]
    return Rotary(angles, rotary.pair_layout, rotary.attention_scale)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    scale: float,
    plan: WindowPlan | None,
    mask: Tensor | None = None,
) -> Tensor:
    """Softmax attention, [B, h, n, D] each to [B, n, C].

    Args:
        bias: see ``Attention.bias``.
        scale: of the scores.
        plan: of the windows, some of which may need a mask, or None.
        mask: see ``Attention.forward``.
    """
    of_all = bias is None or bias.ndim == 3
    if bias is not None:
        # In four dimensions, for fused kernels; a traced one fits any batch in three.
        bias = (bias[None] if of_all and not is_tracing() else bias).to(q.dtype)
    if plan is None or plan.mask is None:
        bias = masked(bias, mask)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)
        return out.transpose(1, 2).flatten(2)
    sizes = [plan.num_unmasked, plan.mask.shape[0]]
    biases = [bias, bias] if bias is None or of_all else bias.split(sizes)
    masks = [biases[0], masked(biases[1], plan.mask)]
    parts = [*zip(q.split(sizes), k.split(sizes), v.split(sizes), masks, strict=True)]
    if not is_tracing() and plan.num_unmasked == 0:
        parts = parts[1:]
    outs = [F.scaled_dot_product_attention(*part, scale=scale).transpose(1, 2) for part in parts]
    return torch.cat(outs).flatten(2)


def masked(bias: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """What is added to the scores, -inf where a mask is false; or a mask alone, for torch."""
    if bias is None or mask is None:
        return mask if bias is None else bias
    return bias.masked_fill(~mask, -torch.inf)


def attend_packed(
    queries: Tensor, keys_values: Tensor, scale: float, plan: WindowPlan | None
) -> Tensor:
    """``attend`` from queries [B, m, h, D] to keys and values [B, n, 2, h, D], to [B, m, C]."""
    q, k, v = (x.transpose(1, 2) for x in (queries, *keys_values.unbind(2)))
    return attend(q, k, v, None, scale, plan)


def offset_grid(size: Size) -> Size:
    """The numbers of row and column offsets between tokens of a grid or window."""
    return 2 * size[0] - 1, 2 * size[1] - 1


def bias_table(size: Size, num_heads: int) -> nn.Parameter:
    """[offsets, h], a learned value for each offset in a grid or window of ``size``."""
    rows, columns = offset_grid(size)
    return nn.Parameter(nn.init.trunc_normal_(torch.empty(rows * columns, num_heads), std=0.02))


def relative_position_index(height: int, width: int, device: torch.device) -> Tensor:
    """[n, n]: row of the bias table for a query and a key.

    The table is row-major over offsets query - key: -(H - 1) .. H - 1 rows, -(W - 1) .. W - 1
    columns.
    """
    return INDEXES.get((height, width), device, lambda: make_index(height, width, device))


def make_index(height: int, width: int, device: torch.device) -> Tensor:
    """See ``relative_position_index``."""
    rows, columns = torch.arange(height, device=device), torch.arange(width, device=device)
    row_offsets = rows[:, None] - rows + height - 1  # [H, H]
    column_offsets = columns[:, None] - columns + width - 1  # [W, W]
    index = row_offsets[:, None, :, None] * (2 * width - 1) + column_offsets[None, :, None, :]
    return index.flatten(2).flatten(0, 1)


def offset_table(table: Tensor, size: int) -> Tensor:
    """[size, size, D]: the entry for query i and key k is that of offset i - k."""
    if is_tracing() or len(table) != 2 * size - 1:
        table = F.interpolate(table.T[None], size=2 * size - 1, mode='linear')[0].T
    index = torch.arange(size, device=table.device)
    return table[index[:, None] - index[None] + size - 1]
