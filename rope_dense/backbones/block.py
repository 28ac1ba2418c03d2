"""The transformer block of all backbones, and its MLPs.

Letters: B images, N tokens (prefix and grid), C channels.
"""

import torch
import torch.nn.functional as F
from mmcv.cnn.bricks import DropPath
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..utils.sizes import Size
from .archs import MlpKind
from .attention import AttentionLayers
from .layers import add_branch, build_norm
from .neighbours import NeighbourPlan
from .windows import WindowPlan

Plan = WindowPlan | NeighbourPlan


class Block(nn.Module):
    """Pre-norm transformer block.

    Args:
        attn: attention among the tokens.
        mlp: [..., C] to [..., C].
        norm_cfg: of the two norm layers, in mmcv's form.
        drop_path_rate: probability of dropping a branch.
        layer_scale_init_value: initial LayerScale of the branches, or None to leave it out.
        layer_scale_mlp: whether the branch of the MLP has a LayerScale, too.
    """

    def __init__(
        self,
        attn: AttentionLayers,
        mlp: nn.Module,
        norm_cfg: dict,
        drop_path_rate: float = 0.0,
        layer_scale_init_value: float | None = None,
        layer_scale_mlp: bool = True,
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
            self.gamma_1 = nn.Parameter(
                torch.full((channels,), float(layer_scale_init_value))
            )
            if layer_scale_mlp:
                self.gamma_2 = nn.Parameter(
                    torch.full((channels,), float(layer_scale_init_value))
                )

    def forward(
        self,
        x: Tensor,
        grid: Size,
        plan: Plan | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Tokens [B, N, C] to tokens; ``grid``, ``plan`` and ``mask``: see ``attn``."""
        x = add_branch(
            x, self.drop_path(self.attn(self.norm1(x), grid, plan, mask)), self.gamma_1
        )
        return add_branch(x, self.drop_path(self.mlp(self.norm2(x))), self.gamma_2)


def recompute(block: Block, x: Tensor, *settings: object) -> Tensor:
    """Call a block on tokens [B, N, C] without keeping activations: backward calls it again."""
    trains = x.requires_grad or any(
        weight.requires_grad for weight in block.parameters()
    )
    if trains and torch.is_grad_enabled():
        return checkpoint(block, x, *settings, use_reentrant=False)
    return block(x, *settings)


def build_mlp(
    kind: MlpKind, embed_dims: int, hidden_dims: int, norm_cfg: dict
) -> nn.Module:
    """Build the MLP of a block; ``norm_cfg`` is of its norm, if the kind has one."""
    if kind in ('gelu', 'gelu_tanh'):
        return Mlp(embed_dims, hidden_dims, 'tanh' if kind == 'gelu_tanh' else 'none')
    return SwiGLU(embed_dims, hidden_dims, norm_cfg if kind == 'swiglu_norm' else None)


class Mlp(nn.Module):
    """Two linear layers with a GELU between.

    Args:
        embed_dims, hidden_dims: channels of the tokens, and between the layers.
        approximate: of the GELU, 'none' or 'tanh' (see ``torch.nn.GELU``).
    """

    def __init__(
        self, embed_dims: int, hidden_dims: int, approximate: str = 'none'
    ) -> None:
        super().__init__()
        self.approximate = approximate
        self.fc1 = nn.Linear(embed_dims, hidden_dims)
        self.fc2 = nn.Linear(hidden_dims, embed_dims)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x), approximate=self.approximate))


class SwiGLU(nn.Module):
    """Two linear layers, one gated by SiLU of the other, and a third.

    Shazeer, "GLU Variants Improve Transformer", 2020. With ``norm_cfg`` the gated channels are
    normalised (EVA-02).
    """

    def __init__(
        self, embed_dims: int, hidden_dims: int, norm_cfg: dict | None = None
    ) -> None:
        super().__init__()
        self.fc1_g = nn.Linear(embed_dims, hidden_dims)
        self.fc1_x = nn.Linear(embed_dims, hidden_dims)
        self.norm = build_norm(norm_cfg, hidden_dims) if norm_cfg else nn.Identity()
        self.fc2 = nn.Linear(hidden_dims, embed_dims)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.norm(F.silu(self.fc1_g(x)) * self.fc1_x(x)))
