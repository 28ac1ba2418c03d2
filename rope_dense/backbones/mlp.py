"""The MLPs of transformer blocks, [..., C] to [..., C]."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from .archs import MlpKind
from .layers import build_norm


def build_mlp(kind: MlpKind, embed_dims: int, hidden_dims: int, norm_cfg: dict) -> nn.Module:
    """Build the MLP of a block; ``norm_cfg`` is of its norm, if the kind has one."""
    if kind == 'gelu':
        return Mlp(embed_dims, hidden_dims)
    return SwiGLU(embed_dims, hidden_dims, norm_cfg if kind == 'swiglu_norm' else None)


class Mlp(nn.Module):
    """Two linear layers with a GELU between."""

    def __init__(self, embed_dims: int, hidden_dims: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(embed_dims, hidden_dims)
        self.fc2 = nn.Linear(hidden_dims, embed_dims)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class SwiGLU(nn.Module):
    """Two linear layers, one gated by SiLU of the other, and a third.

    Shazeer, "GLU Variants Improve Transformer", 2020. With ``norm_cfg`` the gated channels are
    normalised (EVA-02).
    """

    def __init__(self, embed_dims: int, hidden_dims: int, norm_cfg: dict | None = None) -> None:
        super().__init__()
        self.fc1_g = nn.Linear(embed_dims, hidden_dims)
        self.fc1_x = nn.Linear(embed_dims, hidden_dims)
        self.norm = build_norm(norm_cfg, hidden_dims) if norm_cfg else nn.Identity()
        self.fc2 = nn.Linear(hidden_dims, embed_dims)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.norm(F.silu(self.fc1_g(x)) * self.fc1_x(x)))
