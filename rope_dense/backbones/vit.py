"""Plain vision transformer with rotary position embedding, for dense prediction.

Letters: B batch, H x W token grid, R registers, N tokens (prefix and grid), C channels, L blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from mmengine.registry import MODELS
from torch import Tensor, nn

from ..rope import RopeScaling
from ..rope.cache import is_tracing
from ..rope.frequencies import Size
from ..rope.validation import check_choice, check_indexes, check_integer, check_number, check_size
from .archs import ARCHS, DEFAULT, Ape, Default, ViTArch, find_vit_arch
from .attention import Attention, DecomposedBiasAttention, QkvBias
from .base import Backbone, build_rope
from .block import Block
from .layers import (
    PatchEmbed,
    build_norm,
    init_transformer,
    linear_rates,
    resize_grid,
    tile_grid,
    to_map,
)
from .mlp import build_mlp
from .windows import WindowPlan, WindowSetting, fitting_side, window_plan


@MODELS.register_module()
class RoPEViT(Backbone):
    """ViT of Heo et al., "Rotary Position Embedding for Vision Transformer" (ECCV 2024), its
    baselines, and other ViTs with rotary embedding: DINOv3, LingBot-Vision, EVA-02, Perception
    Encoder, SAM3's image encoder, timm's.

    Takes images [B, in_channels, height, width] of any size from one patch up and returns one map
    [B, C, height // patch_size, width // patch_size] for each of ``out_indices``, without the
    prefix tokens. Published weights of all these load, see docs/checkpoints.md. Checked in
    tests/test_vit.py and tests/test_vit_families.py: against timm's independent ports with the same
    random weights, and windowed and relative-position blocks against tests/reference.py.

    Args:
        arch: a name in ``ARCHS`` ('tiny', 'small', 'base' and 'large' are those of the paper), or a
            dict of embed_dims, depth, num_heads and any other attribute of ``ViTArch``. Arguments
            left at 'default' are as it says.
        img_size: pre-training image size, an int or (height, width): the grid of ``pos_embed``, of
            ``rope_scaling`` and of the relative position tables of window blocks.
        patch_size: pixels of a side of a patch.
        in_channels: image channels.
        mlp_ratio: hidden channels of an MLP over C.
        qkv_bias: bias in the qkv projections; 'qv' for none in the keys.
        rope: config of the rotary embedding (``MixedRoPE``, ``AxialRoPE`` or a class of your own),
            or None. Coordinates that fit the grid fit that of a window in window blocks, as in
            EVA-02's detectors.
        rope_scaling: for grids larger than that of ``img_size``, see ``RopeScaling``; without its
            ``grid``. None leaves the frequencies as they are, as in the paper. Windows have no
            fixed factor: theirs always comes from their size.
        use_ape: learned absolute position embedding. True resizes it (bicubic) to the grid of each
            input, 'tile' repeats it over that grid (SAM3).
        use_rel_pos: decomposed relative position bias, ViTDet's baseline; only with ``rope=None``.
        rel_pos_img_size: image size of the relative position tables of global blocks.
        with_cls_token: keep a class token through the blocks. Window blocks can have no prefix.
        num_registers: further prefix tokens, R; window blocks need 0.
        window_size: tokens of a side of a window, an int or (height, width). 'auto' takes the side
            that pads the grid of an image least and is nearest to the pre-training grid, None
            attends globally. Weights do not depend on it; see also ``set_window_size``.
        mask_padding: keep the padding of windows out of attention. False as in detectron2's ViTDet.
        window_block_indexes: blocks that attend within windows; the others attend globally.
        layer_scale_init_value: initial LayerScale of both branches, or None for no LayerScale.
        final_norm: normalise the output of the last block.
        out_indices: blocks whose outputs are returned; negative ones count from the end.
        drop_path_rate: stochastic depth of the last block; grows linearly from 0 at the first.
        frozen_stages: -1 trains everything, 0 freezes the patch and position embeddings, n also the
            first n blocks with their frequencies; ``depth`` freezes all, the final norm too.
        with_cp: recompute each block in backward to save memory.
        norm_cfg: norm layers, in mmcv's form.
        init_cfg: mmengine initialisation, such as ``dict(type='Pretrained', checkpoint=...)``.

    Raises:
        ValueError: arguments that do not fit each other, named in the message.
    """

    ARCHS = ARCHS

    def __init__(
        self,
        arch: str | dict = 'base',
        img_size: int | tuple[int, int] | Default = DEFAULT,
        patch_size: int | Default = DEFAULT,
        in_channels: int = 3,
        mlp_ratio: float | Default = DEFAULT,
        qkv_bias: QkvBias | Default = DEFAULT,
        rope: dict | None | Default = DEFAULT,
        rope_scaling: dict | None = None,
        use_ape: Ape | Default = DEFAULT,
        use_rel_pos: bool = False,
        rel_pos_img_size: int | tuple[int, int] = 1024,
        with_cls_token: bool | Default = DEFAULT,
        num_registers: int | Default = DEFAULT,
        window_size: WindowSetting | Default = DEFAULT,
        mask_padding: bool = False,
        window_block_indexes: Sequence[int] | Default = DEFAULT,
        layer_scale_init_value: float | None | Default = DEFAULT,
        final_norm: bool = False,
        out_indices: Sequence[int] = (-1,),
        drop_path_rate: float = 0.0,
        frozen_stages: int = -1,
        with_cp: bool = False,
        norm_cfg: dict | Default = DEFAULT,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        given = dict(
            img_size=img_size,
            patch_size=patch_size,
            mlp_ratio=mlp_ratio,
            qkv_bias=qkv_bias,
            rope=rope,
            use_ape=use_ape,
            with_cls_token=with_cls_token,
            num_registers=num_registers,
            window_size=window_size,
            window_block_indexes=window_block_indexes,
            layer_scale_init_value=layer_scale_init_value,
            norm_cfg=norm_cfg,
        )
        self.arch = arch = find_vit_arch(self.ARCHS, arch, given)
        channels, depth, patch_size = arch.embed_dims, arch.depth, arch.patch_size
        self.window_blocks = check_indexes('window_block_indexes', arch.window_block_indexes, depth)
        self.out_indices = check_indexes('out_indices', out_indices, depth)
        self.frozen_stages = check_integer('frozen_stages', frozen_stages, -1, depth)
        check_number('drop_path_rate', drop_path_rate, 0, below=1)
        for name, value in dict(
            use_rel_pos=use_rel_pos, mask_padding=mask_padding, final_norm=final_norm
        ).items():
            check_choice(name, value, (True, False))
        if use_rel_pos and arch.rope is not None:
            raise ValueError(
                'use_rel_pos=True is the baseline without rotary embedding: set rope=None'
            )
        if arch.num_prefix_tokens and (self.window_blocks or use_rel_pos):
            raise ValueError(
                'window_block_indexes and use_rel_pos need with_cls_token=False and '
                f'num_registers=0, got {arch.with_cls_token} and {arch.num_registers}'
            )
        self.mask_padding, self.with_cp = mask_padding, with_cp
        self.pretrain_grid = arch.grid
        self.out_channels = [channels] * len(self.out_indices)
        self.out_strides = [patch_size] * len(self.out_indices)
        self.set_window_size(arch.window_size)

        in_channels = check_integer('in_channels', in_channels, 1)
        self.patch_embed = PatchEmbed(in_channels, channels, patch_size, bias=not arch.pre_norm)
        tokens = {
            'cls_token': int(arch.with_cls_token),
            'reg_token': arch.num_registers,
            'pos_embed': arch.grid[0] * arch.grid[1] if arch.use_ape else 0,
        }
        for name, number in tokens.items():
            token = nn.Parameter(torch.zeros(1, number, channels)) if number else None
            self.register_parameter(name, token)
        self.norm_pre = build_norm(arch.norm_cfg, channels) if arch.pre_norm else nn.Identity()
        bias_grids = [None] * depth
        if use_rel_pos:
            whole = check_size('rel_pos_img_size', rel_pos_img_size, patch_size)
            whole = whole[0] // patch_size, whole[1] // patch_size
            bias_grids = [arch.grid if i in self.window_blocks else whole for i in range(depth)]
        self.blocks = nn.ModuleList(
            build_block(arch, bias_grid, rate)
            for bias_grid, rate in zip(bias_grids, linear_rates(drop_path_rate, depth), strict=True)
        )
        self.norm = build_norm(arch.norm_cfg, channels) if final_norm else None
        self.set_rope_scaling(rope_scaling)
        self.apply(init_transformer)
        for embedding in (self.cls_token, self.reg_token, self.pos_embed):
            if embedding is not None:
                nn.init.trunc_normal_(embedding, std=0.02)
        self.freeze()

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        tokens, grid = self.forward_tokens(image)
        for x in tokens:
            if x.requires_grad and not is_tracing():
                # Else the layout of the gradient of a map would go through all blocks.
                x.register_hook(Tensor.contiguous)
        return tuple(to_map(x[:, self.arch.num_prefix_tokens :], grid) for x in tokens)

    def forward_tokens(self, image: Tensor) -> tuple[list[Tensor], Size]:
        """The tokens [B, N, C] after each of ``out_indices``, prefix tokens first, and the grid
        (H, W) of the others. The last block's pass the final norm, if there is one."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.frozen_stages < 0):
            x, grid = self.embed(image)
        plan = self.plan(x.shape[0], grid, x.device)
        outs = []
        for index, block in enumerate(self.blocks):
            with torch.set_grad_enabled(torch.is_grad_enabled() and index >= self.frozen_stages):
                x = self.run(block, x, grid, plan if index in self.window_blocks else None)
            if index in self.out_indices:
                is_last = index == len(self.blocks) - 1
                outs.append(self.norm(x) if is_last and self.norm is not None else x)
        return outs, grid

    def embed(self, image: Tensor) -> tuple[Tensor, Size]:
        """Tokens [B, N, C] before the first block, and the grid (H, W)."""
        x, grid = self.patch_embed(image)  # [B, H W, C]
        if self.pos_embed is not None:
            adapted = tile_grid if self.arch.use_ape == 'tile' else resize_grid
            x = x + adapted(self.pos_embed, self.pretrain_grid, grid)
        prefix = [token for token in (self.cls_token, self.reg_token) if token is not None]
        if prefix:
            x = torch.cat([*(token.expand(x.shape[0], -1, -1) for token in prefix), x], 1)
        return self.norm_pre(x), grid

    def plan(self, batch: int, grid: Size, device: torch.device) -> WindowPlan | None:
        """The windows of the window blocks; None if they are the whole grid."""
        window_size = self.window_of(grid)
        if window_size is None or not self.window_blocks:
            return None
        return window_plan(batch, grid, window_size, mask_padding=self.mask_padding, device=device)

    def window_of(self, grid: Size) -> Size | None:
        """The window for a grid; None is the whole of it."""
        if self.window_size != 'auto':
            return self.window_size
        height, width = map(fitting_side, grid, self.pretrain_grid)
        return height, width

    @property
    def ordered_blocks(self) -> list[Block]:
        return list(self.blocks)

    def map_sizes(self, height: int, width: int) -> list[Size]:
        return [self.patch_embed.grid(height, width)] * len(self.out_indices)

    def position_tables(self) -> dict[str, Size]:
        resized = self.pos_embed is not None and self.arch.use_ape != 'tile'
        return {'pos_embed': self.pretrain_grid} if resized else {}

    def layer_of(self, name: str) -> int:
        first, *rest = name.split('.')
        if first == 'blocks':
            return int(rest[0]) + 1
        return len(self.blocks) + 1 if first == 'norm' else 0

    def scaling_of(self, block: Block, scaling: RopeScaling | None) -> RopeScaling | None:
        """Windows have no fixed factor: theirs always comes from their size."""
        windowed = any(block is self.blocks[index] for index in self.window_blocks)
        return replace(scaling, factor=None) if scaling is not None and windowed else scaling

    def frozen_modules(self) -> list[nn.Module | nn.Parameter | None]:
        if self.frozen_stages < 0:
            return []
        prefix = [self.cls_token, self.reg_token, self.pos_embed]
        all_blocks = self.frozen_stages == len(self.blocks)
        return [
            self.patch_embed,
            *prefix,
            self.norm_pre,
            *self.blocks[: self.frozen_stages],
            self.norm if all_blocks else None,
        ]


def build_block(arch: ViTArch, bias_grid: Size | None, drop_path_rate: float) -> Block:
    """A block of an architecture.

    Args:
        bias_grid: (H, W) of the tables of relative positions, None for no tables.
        drop_path_rate: see ``Block``.
    """
    arguments = dict(
        embed_dims=arch.embed_dims,
        num_heads=arch.num_heads,
        qkv_bias=arch.qkv_bias,
        rope=build_rope(
            arch.rope, head_dim=arch.embed_dims // arch.num_heads, num_heads=arch.num_heads
        ),
        num_prefix_tokens=arch.num_prefix_tokens,
        norm_cfg=arch.norm_cfg if arch.attn_norm else None,
    )
    if bias_grid is None:
        attn = Attention(**arguments)
    else:
        attn = DecomposedBiasAttention(**arguments, bias_grid=bias_grid)
    hidden_dims = int(arch.embed_dims * arch.mlp_ratio)
    mlp = build_mlp(arch.mlp, arch.embed_dims, hidden_dims, arch.norm_cfg)
    return Block(attn, mlp, arch.norm_cfg, drop_path_rate, arch.layer_scale_init_value)
