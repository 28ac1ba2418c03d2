"""Multi-head self-attention that takes a rotation or a bias.

Letters: B images or windows, N tokens, h heads, D channels of a head, C = h * D, H x W token grid.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..rope import Rotation, cut_windows, rotate_qkv
from .layers import build_norm
from .windows import Size, attend_in_windows

QkvBias = bool | Literal['qv']


class Attention(nn.Module):
    """Self-attention with rotary position embedding, decomposed relative position bias, or neither.

    Args:
        embed_dims: C.
        num_heads: h.
        qkv_bias: whether the qkv projection has a bias; 'qv' for queries and values only. (A bias
            of unrotated keys adds the same to all scores of a query. A rotated one does not.)
        rel_pos_size: (H, W) that the relative position tables are made for, or None for no tables.
            At another grid the tables are resized linearly (ViTDet: Li et al., "Exploring Plain
            Vision Transformer Backbones for Object Detection", ECCV 2022). They start at zero.
        norm_cfg: of a norm before the output projection (EVA-02-CLIP), or None.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        qkv_bias: QkvBias = True,
        rel_pos_size: tuple[int, int] | None = None,
        norm_cfg: dict | None = None,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dims, 3 * embed_dims, bias=qkv_bias is True)
        self.q_bias = self.v_bias = None
        if qkv_bias == 'qv':
            self.q_bias = nn.Parameter(torch.zeros(embed_dims))
            self.v_bias = nn.Parameter(torch.zeros(embed_dims))
        self.norm = build_norm(norm_cfg, embed_dims) if norm_cfg else nn.Identity()
        self.proj = nn.Linear(embed_dims, embed_dims)
        self.rel_pos_h = self.rel_pos_w = None
        if rel_pos_size is not None:
            height, width = rel_pos_size
            self.rel_pos_h = nn.Parameter(torch.zeros(2 * height - 1, embed_dims // num_heads))
            self.rel_pos_w = nn.Parameter(torch.zeros(2 * width - 1, embed_dims // num_heads))

    def forward(
        self,
        x: Tensor,
        grid: Size,
        rotation: Rotation | None = None,
        window_size: Size | None = None,
        padding: Size = (0, 0),
    ) -> Tensor:
        """Attend among the N tokens of each sequence, or of each window.

        Args:
            x: [B, N, C].
            grid: (H, W) of the tokens.
            rotation: of N tokens, or of a window, or None.
            window_size: (H, W) of the windows to attend within, or None.
            padding: of the grid, see ``cut_windows``.

        Returns:
            [B, N, C].
        """
        qkv = self.qkv(x) if self.q_bias is None else F.linear(x, self.qkv.weight, self.bias())
        qkv = qkv.unflatten(-1, (3, self.num_heads, -1))  # [B, N, 3, h, D]
        score_factor = 1.0 if rotation is None else rotation.score_factor

        def attend_in(q: Tensor, k: Tensor, v: Tensor, size: Size) -> Tensor:
            bias = None
            if self.rel_pos_h is not None:
                tables = self.rel_pos_h, self.rel_pos_w
                bias = decomposed_bias(q, *tables, size, window_size or grid)
            return attend(q, k, v, bias, score_factor)

        if window_size is None:
            attended = attend_in(*rotate_qkv(qkv, rotation), grid)
        else:
            partition = cut_windows((len(x), *grid), window_size, padding=padding)
            qkv = qkv.unflatten(1, grid)
            attended = attend_in_windows(qkv, partition, rotation, attend_in, self.bias())
            attended = attended.flatten(1, 2)
        return self.proj(self.norm(attended))

    def bias(self) -> Tensor | None:
        """[3 * C], of the qkv projection."""
        if self.q_bias is None:
            return self.qkv.bias
        return torch.cat([self.q_bias, torch.zeros_like(self.q_bias), self.v_bias])


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None = None,
    score_factor: float = 1.0,
) -> Tensor:
    """Softmax attention.

    Args:
        q, k, v: [B, h, N, D].
        bias: added to the scaled scores; broadcasts to [B, h, N, N].
        score_factor: of the scores, on top of D ** -0.5.

    Returns:
        [B, N, C], the heads joined.
    """
    bias = None if bias is None else bias.to(q.dtype)
    scale = q.shape[-1] ** -0.5 * score_factor
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)
    return out.transpose(1, 2).flatten(2)


def decomposed_bias(
    q: Tensor,
    rel_pos_h: Tensor,
    rel_pos_w: Tensor,
    grid: tuple[int, int],
    window_size: tuple[int, int],
) -> Tensor:
    """Relative position bias of ViTDet, a row and a column part, each a product of a query and a
    table entry.

    Args:
        q: [B, h, N, D], not scaled, N = H * W.
        rel_pos_h, rel_pos_w: [.., D] tables over the offsets in ``window_size``, or resized to.
        grid: (H, W), no larger than ``window_size``.

    Returns:
        [B, h, N, N].
    """
    height, width = grid
    rows_table = offset_table(rel_pos_h, window_size[0])[:height, :height]
    columns_table = offset_table(rel_pos_w, window_size[1])[:width, :width]
    q = q.unflatten(2, (height, width))  # [B, h, H, W, D]
    rows = torch.einsum('bnhwd,hkd->bnhwk', q, rows_table)
    columns = torch.einsum('bnhwd,wkd->bnhwk', q, columns_table)
    return (rows[..., :, None] + columns[..., None, :]).flatten(4, 5).flatten(2, 3)


def offset_table(table: Tensor, size: int) -> Tensor:
    """[size, size, D]: the entry for query i and key k is that of offset i - k."""
    if len(table) != 2 * size - 1:
        table = F.interpolate(table.T[None], size=2 * size - 1, mode='linear')[0].T
    index = torch.arange(size, device=table.device)
    return table[index[:, None] - index[None] + size - 1]
