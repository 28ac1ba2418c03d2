"""The block of a plain vision transformer.

Letters: B images, H x W token grid, N tokens (prefix and grid), C channels.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from mmcv.cnn.bricks import DropPath
from torch import Tensor, nn

from ..rope import Rotation, Windows, split_windows
from .archs import ViTArch
from .attention import Attention
from .layers import add_branch, build_mlp, build_norm, join
from .windows import (
    Size,
    attend_in_windows,
    window_padding,
)


class ViTBlock(nn.Module):
    """Pre-norm transformer block, global or windowed.

    In a windowed block the grid is padded with zeros after the first norm, as in detectron2's
    ViTDet.

    Args:
        arch: sizes and parts of the block.
        rel_pos_size: (H, W) of the relative position tables, None for none.
        mask_padding: see ``RoPEViT``.
        drop_path: probability of dropping a branch.
    """

    def __init__(
        self,
        arch: ViTArch,
        *,
        rel_pos_size: Size | None = None,
        mask_padding: bool = False,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        channels, norm_cfg = arch.embed_dims, arch.norm_cfg
        self.mask_padding = mask_padding
        self.norm1 = build_norm(norm_cfg, channels)
        self.attn = Attention(
            channels,
            arch.num_heads,
            arch.qkv_bias,
            rel_pos_size,
            norm_cfg if arch.attn_norm else None,
        )
        self.norm2 = build_norm(norm_cfg, channels)
        self.mlp = build_mlp(arch.mlp, channels, int(channels * arch.mlp_ratio), norm_cfg)
        self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()
        self.gamma_1 = self.gamma_2 = None
        if arch.layer_scale_init_value is not None:
            self.gamma_1 = nn.Parameter(torch.full((channels,), arch.layer_scale_init_value))
            self.gamma_2 = nn.Parameter(torch.full((channels,), arch.layer_scale_init_value))

    def forward(
        self, x: Tensor, grid: Size, window_size: Size | None, rotation: Rotation | None
    ) -> Tensor:
        """Tokens to tokens.

        Args:
            x: [B, N, C].
            grid: (H, W) of the tokens after any prefix.
            window_size: of the windows to attend within; None to attend globally.
            rotation: of all tokens, or of a window.

        Returns:
            [B, N, C].
        """
        attended = self.attend(self.norm1(x), grid, window_size, rotation)
        x = add_branch(x, self.drop_path(attended), self.gamma_1)
        return add_branch(x, self.drop_path(self.mlp(self.norm2(x))), self.gamma_2)

    def attend(
        self, x: Tensor, grid: Size, window_size: Size | None, rotation: Rotation | None
    ) -> Tensor:
        if window_size is None:
            return self.attn(x, grid, rotation)

        def attend(tokens: Tensor, windows: Sequence[Windows]) -> Tensor:
            outs = []
            parts = zip(split_windows(tokens, windows), windows, strict=True)
            for part, (_, height, width) in parts:
                cropped = rotation and rotation.crop(height=height, width=width)
                outs.append(self.attn(part, (height, width), cropped, window_size).flatten(0, 1))
            return join(outs, 0)

        x = x.unflatten(1, grid)  # [B, H, W, C]
        padding = (0, 0) if self.mask_padding else window_padding(grid, window_size)
        return attend_in_windows(x, window_size, attend, padding=padding).flatten(1, 2)
