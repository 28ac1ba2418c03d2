"""The Swin block: attention in windows, shifted without a mask.

Letters: B images or windows, H x W token grid, N tokens of a window, h heads, D channels of a head,
C = h * D.
"""

from __future__ import annotations

from functools import partial

import torch
from mmcv.cnn.bricks import DropPath
from torch import Tensor, nn

from ..rope import Rotation, rotate_qkv
from .attention import attend
from .layers import Mlp, build_norm, in_parts, resize_grid
from .windows import Size, attend_in_windows


class SwinBlock(nn.Module):
    """Pre-norm transformer block that attends within windows, see ``attend_in_windows``.

    Arguments are those of ``RoPESwin``.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        *,
        bias_window: Size | None,
        mask_padding: bool,
        mlp_ratio: float,
        qkv_bias: bool,
        drop_path: float,
        norm_cfg: dict,
    ) -> None:
        super().__init__()
        self.mask_padding = mask_padding
        self.norm1 = build_norm(norm_cfg, embed_dims)
        self.attn = WindowAttention(embed_dims, num_heads, qkv_bias, bias_window)
        self.norm2 = build_norm(norm_cfg, embed_dims)
        self.mlp = Mlp(embed_dims, int(embed_dims * mlp_ratio))
        self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()

    def forward(
        self, x: Tensor, window_size: Size, shift: Size, rotation: Rotation | None
    ) -> Tensor:
        """[B, H, W, C] to [B, H, W, C]; ``rotation`` is that of a whole window."""
        bias = self.attn.bias(*window_size)
        attended = attend_in_windows(
            self.norm1(x),
            window_size,
            lambda windows, size: self.attn(windows, size, rotation, bias),
            shift=shift,
            mask_padding=self.mask_padding,
        )
        x = x + self.drop_path(attended)
        return x + self.drop_path(self.mlp(self.norm2(x)))


class WindowAttention(nn.Module):
    """Self-attention within windows: rotary embedding, relative position bias, both or neither.

    Args:
        embed_dims: C.
        num_heads: h.
        qkv_bias: whether the qkv projection has a bias.
        bias_window: (height, width) of the window that the relative position bias table is made
            for, None for no bias. For other windows it is resized (bicubic).
    """

    def __init__(
        self, embed_dims: int, num_heads: int, qkv_bias: bool, bias_window: Size | None
    ) -> None:
        super().__init__()
        self.num_heads, self.bias_window = num_heads, bias_window
        self.qkv = nn.Linear(embed_dims, 3 * embed_dims, bias=qkv_bias)
        self.proj = nn.Linear(embed_dims, embed_dims)
        self.relative_position_bias_table = None
        if bias_window is not None:
            offsets = (2 * bias_window[0] - 1) * (2 * bias_window[1] - 1)
            self.relative_position_bias_table = nn.Parameter(torch.empty(offsets, num_heads))
            nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def forward(
        self,
        windows: Tensor,
        window_size: Size,
        rotation: Rotation | None,
        bias: Tensor | None,
    ) -> Tensor:
        """Attend among the tokens of each window.

        Args:
            windows: [B, N, C], N = height * width of ``window_size``.
            window_size: (height, width) in tokens, no larger than ``rotation`` and ``bias``.
            rotation: of a window of that size or larger, or None.
            bias: [h, H, W, H, W] of a window of that size or larger, or None.

        Returns:
            [B, N, C].
        """
        height, width = window_size
        if rotation is not None:
            rotation = rotation.crop(height=height, width=width)
        if bias is not None:
            bias = bias[:, :height, :width, :height, :width].flatten(3).flatten(1, 2)  # [h, N, N]
        return in_parts(partial(self.attend, rotation=rotation, bias=bias), windows)

    def attend(self, windows: Tensor, *, rotation: Rotation | None, bias: Tensor | None) -> Tensor:
        """[B, N, C] to [B, N, C]; rotation and bias [h, N, N] fit."""
        qkv = self.qkv(windows).unflatten(-1, (3, self.num_heads, -1))  # [B, N, 3, h, D]
        q, k, v = rotate_qkv(qkv, rotation)  # [B, h, N, D] each
        score_factor = 1.0 if rotation is None else rotation.score_factor
        return self.proj(attend(q, k, v, bias, score_factor))

    def bias(self, height: int, width: int) -> Tensor | None:
        """[h, H, W, H, W], the relative position bias of each query and key of a window."""
        if self.relative_position_bias_table is None:
            return None
        offsets = 2 * height - 1, 2 * width - 1
        table = resized_bias_table(self.relative_position_bias_table, self.bias_window, offsets)
        index = relative_position_index(height, width, table.device)
        return table[index].permute(4, 0, 1, 2, 3)


def resized_bias_table(table: Tensor, window_size: Size, offsets: Size) -> Tensor:
    """A bias table [(2 H - 1) (2 W - 1), h] over other offsets (rows, columns), bicubic."""
    old = 2 * window_size[0] - 1, 2 * window_size[1] - 1
    return resize_grid(table[None], old, offsets)[0]


def relative_position_index(height: int, width: int, device: torch.device) -> Tensor:
    """[H, W, H, W]: row of the bias table for a query at [row, column] and a key at [row, column].

    The table is row-major over offsets query - key: -(H - 1) .. H - 1 rows, -(W - 1) .. W - 1
    columns.
    """
    rows, columns = torch.arange(height, device=device), torch.arange(width, device=device)
    row_offsets = rows[:, None] - rows + height - 1  # [H, H]
    column_offsets = columns[:, None] - columns + width - 1  # [W, W]
    return row_offsets[:, None, :, None] * (2 * width - 1) + column_offsets[None, :, None, :]
