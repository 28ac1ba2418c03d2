"""The Plain Mask Transformer (PMT): new blocks for the queries, on several maps of a ViT.

Letters: see queries.py.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...backbones import RoPEViT
from ...backbones.archs import DINOV3, DINOV3_ROPE, ViTArch
from ...backbones.attention import Place
from ...backbones.block import Block
from ...backbones.from_config import build_block
from ...backbones.layers import build_norm, module_list
from .queries import MaskQueries, Prediction

# As published, for any encoder; positions are not augmented.
BLOCKS: dict[str, Any] = dict(
    DINOV3,
    mlp_ratio=1.0,
    qkv_bias='qv',
    rope=DINOV3_ROPE,
    num_registers=0,
    with_cls_token=False,
    layer_scale_init_value=1.0,
)


class PMT(MaskQueries):
    """Queries in blocks of their own, after a backbone that may be frozen.

    The tokens after each of the backbone's ``out_indices``, prefix tokens included, pass a
    ``Lateral`` and are summed up; the queries join the sum. Source: tue-mps/pmt at 54d73c9,
    image/models/pmt.py and pmd.py; checked against it with the same random weights, in evaluation
    and masked training, in tests/models/test_pmt.py.

    Args:
        num_laterals: how many maps the backbone returns.
        blocks: attributes of ``ViTArch`` that replace values of ``BLOCKS``; heads have 64 channels
            unless it says ``num_heads``.
    """

    norm: nn.Module
    blocks: Sequence[Block]

    def __init__(
        self,
        embed_dims: int,
        num_classes: int,
        num_queries: int,
        num_blocks: int = 6,
        patch_size: int = 16,
        *,
        num_laterals: int = 4,
        blocks: dict | None = None,
    ) -> None:
        super().__init__(embed_dims, num_classes, num_queries, num_blocks, patch_size)
        settings = BLOCKS | dict(num_heads=max(1, embed_dims // 64)) | (blocks or {})
        arch = ViTArch(embed_dims=embed_dims, depth=num_blocks, **settings)
        self.laterals = nn.ModuleList(Lateral(embed_dims) for _ in range(num_laterals))
        indexes = range(num_blocks)
        places = [Place(arch.grid, index=i, depth=num_blocks) for i in indexes]
        self.blocks = module_list(build_block(arch, place, 0.0) for place in places)
        self.norm = build_norm(arch.norm_cfg, embed_dims)

    def join(self, backbone: RoPEViT) -> None:
        super().join(backbone)
        if len(backbone.out_indices) != len(self.laterals):
            raise ValueError(
                f'PMT has num_laterals={len(self.laterals)}, the backbone returns the maps of '
                f'out_indices={backbone.out_indices}'
            )
        for block in self.blocks:
            block.attn.num_prefix_tokens = self.num_queries + backbone.num_prefix_tokens

    def forward(self, backbone: RoPEViT, image: Tensor) -> list[Prediction]:
        """See ``MaskQueries``."""
        # Half precision, if exported so.
        dtype = next(backbone.patch_embed.parameters()).dtype
        tokens, grid = backbone.forward_tokens(image.to(dtype))
        weight = self.query.weight
        pairs = zip(self.laterals, tokens, strict=True)
        laterals = [lateral(x.to(weight.dtype)) for lateral, x in pairs]
        x = torch.stack(laterals).sum(0)  # [B, R + H W, C]
        number = backbone.num_prefix_tokens
        return self.decode(x, grid, number, list(self.blocks), self.norm)


class Lateral(nn.Module):
    """Tokens [B, N, C] to tokens: a batch norm, an MLP beside the identity, a scale of channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)
        self.mlp = nn.Sequential(
            nn.Linear(channels, channels // 2),
            nn.GELU(),
            nn.Linear(channels // 2, channels),
        )
        self.scale = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x.transpose(1, 2)).transpose(1, 2)
        return (x + self.mlp(x)) * self.scale
