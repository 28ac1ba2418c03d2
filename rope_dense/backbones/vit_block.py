"""The block of a plain vision transformer.

Letters: B images, H x W token grid, N tokens (prefix and grid), C channels.
"""

from __future__ import annotations

import torch
from mmcv.cnn.bricks import DropPath
from torch import Tensor, nn

from ..rope import Rotation, window_padding
from .archs import ViTArch
from .attention import Attention
from .layers import add_branch, build_norm
from .mlp import build_mlp
from .windows import Size


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
        padding = (0, 0)
        if window_size is not None and not self.mask_padding:
            padding = window_padding(grid, window_size)
        attended = self.attn(self.norm1(x), grid, rotation, window_size, padding)
        x = add_branch(x, self.drop_path(attended), self.gamma_1)
        return add_branch(x, self.drop_path(self.mlp(self.norm2(x))), self.gamma_2)
