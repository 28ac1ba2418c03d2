"""The Swin block: attention in windows, shifted without a mask.

Letters: B images, H x W token grid, N tokens of a window, h heads, D channels of a head, C = h * D.
"""

from __future__ import annotations

from functools import partial

import torch
from mmcv.cnn.bricks.drop import drop_path
from torch import Tensor, nn

from ..rope import Partition, Rotation, cut_windows, window_padding
from .attention import attend
from .layers import add_branch, build_norm, join, num_parts, resize_grid
from .mlp import Mlp
from .windows import Size, attend_in_windows, strips


class SwinBlock(nn.Module):
    """Pre-norm transformer block that attends within windows, see ``cut_windows``.

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
        drop_path_rate: float,
        norm_cfg: dict,
    ) -> None:
        super().__init__()
        self.mask_padding = mask_padding
        self.norm1 = build_norm(norm_cfg, embed_dims)
        self.attn = WindowAttention(embed_dims, num_heads, qkv_bias, bias_window)
        self.norm2 = build_norm(norm_cfg, embed_dims)
        self.mlp = Mlp(embed_dims, int(embed_dims * mlp_ratio))
        self.drop_path_rate = drop_path_rate

    def forward(
        self, x: Tensor, window_size: Size, shift: Size, rotation: Rotation | None
    ) -> Tensor:
        """[B, H, W, C] to [B, H, W, C]; ``rotation`` is that of a whole window.

        Everything in a block is local to a row of windows, so it is computed strip by strip.
        """
        attend = partial(self.attn, rotation=rotation, bias=self.attn.bias(*window_size))
        padding = (0, 0) if self.mask_padding else window_padding(x.shape[1:3], window_size)
        keep = [self.branch_scale(x) for _ in range(2)]
        outs = []
        for strip, down, bottom in strips(x, window_size[0], shift[0], padding[0], num_parts(x)):
            partition = cut_windows(
                strip.shape[:3],
                window_size,
                shift=(down, shift[1]),
                padding=(bottom, padding[1]),
            )
            strip = add_branch(strip, attend(self.norm1(strip), partition), keep[0])
            outs.append(add_branch(strip, self.mlp(self.norm2(strip)), keep[1]))
        return join(outs, 1)

    def branch_scale(self, x: Tensor) -> Tensor | None:
        """[B, 1, 1, 1], what stochastic depth multiplies a branch of each image by; None is 1."""
        if self.drop_path_rate == 0 or not self.training:
            return None
        return drop_path(x.new_ones(len(x), 1, 1, 1), self.drop_path_rate, training=True)


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
        self, x: Tensor, partition: Partition, *, rotation: Rotation | None, bias: Tensor | None
    ) -> Tensor:
        """Attend among the tokens of each window.

        Args:
            x: [B, H, W, C].
            partition: of the grid.
            rotation: of a window as large as the largest, or None.
            bias: [h, H, W, H, W] of a window as large as the largest, or None.

        Returns:
            [B, H, W, C].
        """
        qkv = self.qkv(x).unflatten(-1, (3, self.num_heads, -1))  # [B, H, W, 3, h, D]
        score_factor = 1.0 if rotation is None else rotation.score_factor

        def attend_in(q: Tensor, k: Tensor, v: Tensor, size: Size) -> Tensor:
            return attend(q, k, v, crop_bias(bias, *size), score_factor)

        return self.proj(attend_in_windows(qkv, partition, rotation, attend_in, self.qkv.bias))

    def bias(self, height: int, width: int) -> Tensor | None:
        """[h, H, W, H, W], the relative position bias of each query and key of a window."""
        if self.relative_position_bias_table is None:
            return None
        offsets = 2 * height - 1, 2 * width - 1
        table = resized_bias_table(self.relative_position_bias_table, self.bias_window, offsets)
        index = relative_position_index(height, width, table.device)
        return table[index].permute(4, 0, 1, 2, 3)


def crop_bias(bias: Tensor | None, height: int, width: int) -> Tensor | None:
    """[h, H, W, H, W] to [h, N, N], the bias of the top left ``height`` x ``width`` tokens."""
    if bias is None:
        return None
    return bias[:, :height, :width, :height, :width].flatten(3).flatten(1, 2)


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
