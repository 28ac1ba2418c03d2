"""The Swin block: attention in windows, shifted without a mask.

Letters: B images or windows, H x W token grid, N tokens of a window, h heads, D channels of a head,
C = h * D.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from mmcv.cnn.bricks import DropPath
from torch import Tensor, nn

from ..rope import Rotation, rotate_qkv
from .attention import attend
from .layers import Mlp, build_norm
from .windows import merge_windows, pad_to_windows, partition_windows


class SwinBlock(nn.Module):
    """Pre-norm transformer block that attends within windows.

    The grid is zero-padded to whole windows after the first norm. Published implementations shift
    it cyclically and mask the pairs of tokens that are not neighbours in the image. Here the border
    windows are cut to what is left of them instead: smaller windows, which attend on their own.
    Rotation and bias depend on offsets only, so a smaller window takes those of its own size. The
    result is the same, without a mask.

    Args:
        shifted: shift the windows by half a window.
        others: see ``RoPESwin``.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        *,
        use_rpb: bool,
        window_size: tuple[int, int],
        shifted: bool,
        mlp_ratio: float,
        qkv_bias: bool,
        drop_path: float,
        norm_cfg: dict,
    ) -> None:
        super().__init__()
        self.window_size = window_size
        self.shift = tuple(side // 2 if shifted else 0 for side in window_size)
        self.norm1 = build_norm(norm_cfg, embed_dims)
        self.attn = WindowAttention(
            embed_dims, num_heads, qkv_bias, bias_window=window_size if use_rpb else None
        )
        self.norm2 = build_norm(norm_cfg, embed_dims)
        self.mlp = Mlp(embed_dims, int(embed_dims * mlp_ratio))
        self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()

    def forward(self, x: Tensor, rotation: Rotation | None) -> Tensor:
        """[B, H, W, C] to [B, H, W, C]; ``rotation`` is that of a whole window."""
        x = x + self.drop_path(self.attend_in_windows(self.norm1(x), rotation))
        return x + self.drop_path(self.mlp(self.norm2(x)))

    def attend_in_windows(self, x: Tensor, rotation: Rotation | None) -> Tensor:
        (_, height, width, _), (window_height, window_width) = x.shape, self.window_size
        x = pad_to_windows(x, self.window_size)
        strips = []
        for strip, part_height in cut(x, 1, window_height, self.shift[0]):
            parts = [
                self.attend_in_part(part, (part_height, part_width), rotation)
                for part, part_width in cut(strip, 2, window_width, self.shift[1])
            ]
            strips.append(join(parts, 2))
        return join(strips, 1)[:, :height, :width]

    def attend_in_part(
        self, x: Tensor, window_size: tuple[int, int], rotation: Rotation | None
    ) -> Tensor:
        """Attend within the windows of a part of the grid, [B, H, W, C] of whole windows."""
        windows = partition_windows(x, window_size)
        windows = self.attn(windows, window_size, rotation)
        return merge_windows(windows, window_size, tuple(x.shape[1:3]))


class WindowAttention(nn.Module):
    """Self-attention within windows: rotary embedding, relative position bias, both or neither.

    Args:
        embed_dims: C.
        num_heads: h.
        qkv_bias: whether the qkv projection has a bias.
        bias_window: (height, width) of the largest window, which the relative position bias table
            is made for; None for no bias.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        qkv_bias: bool,
        bias_window: tuple[int, int] | None,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dims, 3 * embed_dims, bias=qkv_bias)
        self.proj = nn.Linear(embed_dims, embed_dims)
        self.relative_position_bias_table = None
        if bias_window is not None:
            offsets = (2 * bias_window[0] - 1) * (2 * bias_window[1] - 1)
            self.relative_position_bias_table = nn.Parameter(torch.empty(offsets, num_heads))
            nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)
            index = relative_position_index(bias_window)
            self.register_buffer('relative_position_index', index, persistent=False)

    def forward(
        self, windows: Tensor, window_size: tuple[int, int], rotation: Rotation | None
    ) -> Tensor:
        """Attend among the tokens of each window.

        Args:
            windows: [B, N, C], N = height * width of ``window_size``.
            window_size: (height, width) in tokens, no larger than ``rotation`` and ``bias_window``.
            rotation: of a window of that size or larger, or None.

        Returns:
            [B, N, C].
        """
        height, width = window_size
        if rotation is not None:
            rotation = rotation.crop(height=height, width=width)
        qkv = self.qkv(windows).unflatten(-1, (3, self.num_heads, -1))  # [B, N, 3, h, D]
        q, k, v = rotate_qkv(qkv, rotation)  # [B, h, N, D] each
        return self.proj(attend(q, k, v, self.bias(height=height, width=width)))

    def bias(self, *, height: int, width: int) -> Tensor | None:
        """[1, h, N, N], the relative position bias of a window, or None."""
        if self.relative_position_bias_table is None:
            return None
        index = self.relative_position_index[:height, :width, :height, :width]
        index = index.flatten(2).flatten(0, 1)  # [N, N]
        return self.relative_position_bias_table[index].permute(2, 0, 1).unsqueeze(0)


def cut(x: Tensor, dim: int, window: int, shift: int) -> list[tuple[Tensor, int]]:
    """Cut a grid of whole windows along ``dim`` where windows shifted by ``shift`` change size.

    Returns:
        The parts and the size of their windows. Without shift the whole grid; else one incomplete
        window of ``shift`` tokens, all complete windows, if any, and the incomplete rest.
    """
    if not shift:
        return [(x, window)]
    sizes = [shift, x.shape[dim] - window, window - shift]
    parts = zip(x.split(sizes, dim), (shift, window, window - shift), strict=True)
    return [(part, size) for part, size in parts if part.shape[dim]]


def join(parts: Sequence[Tensor], dim: int) -> Tensor:
    """``torch.cat`` that does not copy a single part."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def relative_position_index(window_size: tuple[int, int]) -> Tensor:
    """[H, W, H, W]: row of the bias table for a query at [row, column] and a key at [row, column].

    The table is row-major over offsets query - key: -(H - 1) .. H - 1 rows, -(W - 1) .. W - 1
    columns.
    """
    height, width = window_size
    rows, columns = torch.arange(height), torch.arange(width)
    row_offsets = rows[:, None] - rows + height - 1  # [H, H]
    column_offsets = columns[:, None] - columns + width - 1  # [W, W]
    return row_offsets[:, None, :, None] * (2 * width - 1) + column_offsets[None, :, None, :]
