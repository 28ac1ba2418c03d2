"""The transformer block of all backbones.

Letters: B images, N tokens (prefix and grid), C channels.
"""

from __future__ import annotations

import torch
from mmcv.cnn.bricks import DropPath
from torch import Tensor, nn

from ..utils.sizes import Size
from .attention import AttentionLayers
from .layers import add_branch, build_norm
from .neighbours import Plan


class Block(nn.Module):
    """Pre-norm transformer block.

    Args:
        attn: attention among the tokens.
        mlp: [..., C] to [..., C].
        norm_cfg: of the two norm layers, in mmcv's form.
        drop_path_rate: probability of dropping a branch.
        layer_scale_init_value: initial LayerScale of both branches, or None for none.
    """

    def __init__(
        self,
        attn: AttentionLayers,
        mlp: nn.Module,
        norm_cfg: dict,
        drop_path_rate: float = 0.0,
        layer_scale_init_value: float | None = None,
    ) -> None:
        super().__init__()
        channels = attn.proj.out_features
        self.norm1 = build_norm(norm_cfg, channels)
        self.attn = attn
        self.norm2 = build_norm(norm_cfg, channels)
        self.mlp = mlp
        self.drop_path = DropPath(drop_path_rate) if drop_path_rate else nn.Identity()
        self.layer_scale_init_value = layer_scale_init_value
        self.gamma_1 = self.gamma_2 = None
        if layer_scale_init_value is not None:
            self.gamma_1 = nn.Parameter(torch.full((channels,), float(layer_scale_init_value)))
            self.gamma_2 = nn.Parameter(torch.full((channels,), float(layer_scale_init_value)))

    def forward(
        self,
        x: Tensor,
        grid: Size,
        plan: Plan | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Tokens [B, N, C] to tokens; ``grid``, ``plan`` and ``mask``: see ``attn``."""
        x = add_branch(x, self.drop_path(self.attn(self.norm1(x), grid, plan, mask)), self.gamma_1)
        return add_branch(x, self.drop_path(self.mlp(self.norm2(x))), self.gamma_2)

    @property
    def is_compiled(self) -> bool:
        """True if ``compile`` was called."""
        return self._compiled_call_impl is not None
