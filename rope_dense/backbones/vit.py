"""Plain vision transformer with rotary position embedding, for dense prediction.

Letters: B batch, H x W token grid, N tokens (prefix and grid), C channels, L blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from mmcv.cnn.bricks import DropPath
from mmengine.registry import MODELS
from torch import Tensor, nn
from torch.nn.modules.utils import _pair
from torch.utils.checkpoint import checkpoint

from ..rope import Rotation
from .attention import Attention
from .base import Backbone, build_rope
from .layers import (
    Mlp,
    PatchEmbed,
    add_branch,
    block_indexes,
    build_norm,
    find_arch,
    init_transformer,
)
from .windows import merge_windows, partition_windows


@MODELS.register_module()
class RoPEViT(Backbone):
    """ViT of Heo et al., "Rotary Position Embedding for Vision Transformer" (ECCV 2024), and its
    baselines.

    Takes images [B, in_channels, height, width] of any size from one patch up and returns one map
    [B, C, height // patch_size, width // patch_size] for each of ``out_indices``, without the class
    token. Parameter names are those of the published weights. Checked in tests/test_vit.py: against
    timm's independent ports with the same random weights, and windowed and relative-position blocks
    against tests/reference.py.

    Args:
        arch: 'tiny', 'small', 'base', 'large', or a dict of embed_dims, depth and num_heads.
        img_size: pre-training image size, an int or (height, width): the grid of ``pos_embed`` and
            of the relative position tables of global blocks. Rotary embedding does not need it.
        patch_size: pixels of a side of a patch.
        in_channels: image channels.
        mlp_ratio: hidden channels of an MLP over C.
        qkv_bias: bias in the qkv projections.
        rope: config of the rotary embedding (``MixedRoPE``, ``AxialRoPE`` or a class of your own),
            or None.
        use_ape: learned absolute position embedding, resized (bicubic) to the grid of each input.
        use_rel_pos: decomposed relative position bias, ViTDet's baseline; only with ``rope=None``.
        with_cls_token: keep a class token through the blocks. Not with window blocks.
        window_size: tokens of a side of a window, an int or (height, width).
        window_block_indexes: blocks that attend within windows; the others attend globally.
        layer_scale_init_value: initial LayerScale of both branches, or None for no LayerScale.
        final_norm: normalise the output of the last block.
        out_indices: blocks whose outputs are returned; negative ones count from the end.
        drop_path_rate: stochastic depth of the last block; grows linearly from 0 at the first.
        frozen_stages: -1 trains everything, 0 freezes the patch and position embeddings, n also the
            first n blocks.
        with_cp: recompute each block in backward to save memory.
        norm_cfg: norm layers, in mmcv's form.
        init_cfg: mmengine initialisation, such as ``dict(type='Pretrained', checkpoint=...)``.

    Raises:
        ValueError: arguments that do not fit each other, named in the message.
    """

    ARCHS = {
        'tiny': dict(embed_dims=192, depth=12, num_heads=3),
        'small': dict(embed_dims=384, depth=12, num_heads=6),
        'base': dict(embed_dims=768, depth=12, num_heads=12),
        'large': dict(embed_dims=1024, depth=24, num_heads=16),
    }

    def __init__(
        self,
        arch: str | dict = 'base',
        img_size: int | tuple[int, int] = 224,
        patch_size: int = 16,
        in_channels: int = 3,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        rope: dict | None = dict(type='MixedRoPE', theta=10.0),
        use_ape: bool = False,
        use_rel_pos: bool = False,
        with_cls_token: bool = True,
        window_size: int | tuple[int, int] = 14,
        window_block_indexes: Sequence[int] = (),
        layer_scale_init_value: float | None = 1e-4,
        final_norm: bool = False,
        out_indices: Sequence[int] = (-1,),
        drop_path_rate: float = 0.0,
        frozen_stages: int = -1,
        with_cp: bool = False,
        norm_cfg: dict = dict(type='LN', eps=1e-6),
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        sizes = find_arch(self.ARCHS, arch)
        embed_dims, depth, num_heads = sizes['embed_dims'], sizes['depth'], sizes['num_heads']
        if embed_dims % num_heads:
            raise ValueError(
                f'arch: embed_dims {embed_dims} is not a multiple of num_heads {num_heads}'
            )
        if use_rel_pos and rope is not None:
            raise ValueError(
                'use_rel_pos=True is the baseline without rotary embedding: set rope=None'
            )
        self.window_blocks = block_indexes('window_block_indexes', window_block_indexes, depth)
        if with_cls_token and (self.window_blocks or use_rel_pos):
            raise ValueError('window_block_indexes and use_rel_pos need with_cls_token=False')
        self.out_indices = block_indexes('out_indices', out_indices, depth)
        if not -1 <= frozen_stages <= depth:
            raise ValueError(f'frozen_stages must be from -1 to {depth}, got {frozen_stages}')
        self.window_size = window_size = tuple(_pair(window_size))
        self.grid_size = tuple(side // patch_size for side in _pair(img_size))
        self.frozen_stages, self.with_cp = frozen_stages, with_cp
        self.out_channels = [embed_dims] * len(self.out_indices)
        self.out_strides = [patch_size] * len(self.out_indices)

        self.patch_embed = PatchEmbed(in_channels, embed_dims, patch_size)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, embed_dims)) if with_cls_token else None
        grid_tokens = self.grid_size[0] * self.grid_size[1]
        self.pos_embed = nn.Parameter(torch.zeros(1, grid_tokens, embed_dims)) if use_ape else None
        self.rope = build_rope(
            rope, head_dim=embed_dims // num_heads, num_heads=num_heads, depth=depth
        )
        self.blocks = nn.ModuleList(
            ViTBlock(
                embed_dims,
                num_heads,
                mlp_ratio=mlp_ratio,
                qkv_bias=qkv_bias,
                window_size=window_size if index in self.window_blocks else None,
                rel_pos_size=(window_size if index in self.window_blocks else self.grid_size)
                if use_rel_pos
                else None,
                drop_path=drop_path_rate * index / max(depth - 1, 1),
                layer_scale_init_value=layer_scale_init_value,
                norm_cfg=norm_cfg,
            )
            for index in range(depth)
        )
        self.norm = build_norm(norm_cfg, embed_dims) if final_norm else None
        self.apply(init_transformer)
        for embedding in (self.cls_token, self.pos_embed):
            if embedding is not None:
                nn.init.trunc_normal_(embedding, std=0.02)
        self.freeze(self.frozen_modules())

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.frozen_stages < 0):
            x, grid = self.embed(image)  # [B, N, C]
        rotations = self.rotations(grid, image.device)
        outs = []
        for index, block in enumerate(self.blocks):
            with torch.set_grad_enabled(torch.is_grad_enabled() and index >= self.frozen_stages):
                x = self.run(block, x, grid, rotations[index])
            if index in self.out_indices:
                outs.append(self.to_map(x, grid, is_last=index == len(self.blocks) - 1))
        return tuple(outs)

    def embed(self, image: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Tokens [B, N, C], with position embedding and class token if any, and the grid (H, W)."""
        x = self.patch_embed(image)  # [B, C, H, W]
        grid = tuple(x.shape[-2:])
        x = x.flatten(2).transpose(1, 2)
        if self.pos_embed is not None:
            x = x + resize_pos_embed(self.pos_embed, self.grid_size, grid)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1)
        return x, grid

    def rotations(self, grid: tuple[int, int], device: torch.device) -> list[Rotation | None]:
        """The rotation of each block, on the grid of the image or of one window."""
        rotations: list[Rotation | None] = [None] * len(self.blocks)
        if self.rope is None:
            return rotations
        global_blocks = [
            index for index in range(len(self.blocks)) if index not in self.window_blocks
        ]
        num_prefix_tokens = 0 if self.cls_token is None else 1
        for blocks, (height, width) in (
            (global_blocks, grid),
            (self.window_blocks, self.window_size),
        ):
            of_blocks = self.rope(
                blocks,
                height=height,
                width=width,
                device=device,
                num_prefix_tokens=num_prefix_tokens,
            )
            for index, rotation in zip(blocks, of_blocks, strict=True):
                rotations[index] = rotation
        return rotations

    def run(
        self, block: nn.Module, x: Tensor, grid: tuple[int, int], rotation: Rotation | None
    ) -> Tensor:
        if self.with_cp and torch.is_grad_enabled():
            return checkpoint(block, x, grid, rotation, use_reentrant=False)
        return block(x, grid, rotation)

    def to_map(self, x: Tensor, grid: tuple[int, int], is_last: bool) -> Tensor:
        """Tokens [B, N, C] to a map [B, C, H, W]; the last block's output passes the final norm."""
        if is_last and self.norm is not None:
            x = self.norm(x)
        x = x if self.cls_token is None else x[:, 1:]
        return x.transpose(1, 2).unflatten(2, grid).contiguous()

    def frozen_modules(self) -> list[nn.Module | nn.Parameter | None]:
        if self.frozen_stages < 0:
            return []
        return [
            self.patch_embed,
            self.cls_token,
            self.pos_embed,
            *self.blocks[: self.frozen_stages],
        ]


class ViTBlock(nn.Module):
    """Pre-norm transformer block, global or windowed.

    In a windowed block the grid is padded with zeros after the first norm, and padding takes part
    in attention, as in detectron2's ViTDet.

    Args:
        window_size: (height, width) in tokens, or None to attend globally.
        others: see ``RoPEViT``.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        *,
        mlp_ratio: float,
        qkv_bias: bool,
        window_size: tuple[int, int] | None,
        rel_pos_size: tuple[int, int] | None,
        drop_path: float,
        layer_scale_init_value: float | None,
        norm_cfg: dict,
    ) -> None:
        super().__init__()
        self.window_size = window_size
        self.norm1 = build_norm(norm_cfg, embed_dims)
        self.attn = Attention(embed_dims, num_heads, qkv_bias, rel_pos_size)
        self.norm2 = build_norm(norm_cfg, embed_dims)
        self.mlp = Mlp(embed_dims, int(embed_dims * mlp_ratio))
        self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()
        self.gamma_1 = self.gamma_2 = None
        if layer_scale_init_value is not None:
            self.gamma_1 = nn.Parameter(torch.full((embed_dims,), layer_scale_init_value))
            self.gamma_2 = nn.Parameter(torch.full((embed_dims,), layer_scale_init_value))

    def forward(self, x: Tensor, grid: tuple[int, int], rotation: Rotation | None) -> Tensor:
        """[B, N, C] to [B, N, C]; ``rotation`` is that of a window in a windowed block."""
        attend = self.attn if self.window_size is None else self.attend_in_windows
        x = add_branch(x, self.drop_path(attend(self.norm1(x), grid, rotation)), self.gamma_1)
        return add_branch(x, self.drop_path(self.mlp(self.norm2(x))), self.gamma_2)

    def attend_in_windows(
        self, x: Tensor, grid: tuple[int, int], rotation: Rotation | None
    ) -> Tensor:
        windows = partition_windows(x.unflatten(1, grid), self.window_size)
        windows = self.attn(windows, self.window_size, rotation)
        return merge_windows(windows, self.window_size, grid).flatten(1, 2)


def resize_pos_embed(pos_embed: Tensor, grid: tuple[int, int], new_grid: tuple[int, int]) -> Tensor:
    """Position embedding [1, H * W, C] on another grid: bicubic, no antialiasing, as published."""
    if grid == new_grid:
        return pos_embed
    as_map = pos_embed.transpose(1, 2).unflatten(2, grid).float()
    resized = F.interpolate(as_map, size=new_grid, mode='bicubic', align_corners=False)
    return resized.flatten(2).transpose(1, 2).to(pos_embed.dtype)
