"""Plain vision transformer with rotary position embedding, for dense prediction.

Letters: B batch, H x W token grid, R registers, N tokens (prefix and grid), C channels, L blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from mmengine.registry import MODELS
from torch import Tensor, nn
from torch.nn.modules.utils import _pair
from torch.utils.checkpoint import checkpoint

from ..rope import Rotation
from .archs import ARCHS, DEFAULT, Default, find_vit_arch
from .attention import QkvBias
from .base import Backbone, build_rope, build_scaling
from .layers import PatchEmbed, block_indexes, build_norm, init_transformer, resize_grid, to_map
from .vit_block import ViTBlock
from .windows import Size, WindowSetting, check_window_setting, fitting_side


@MODELS.register_module()
class RoPEViT(Backbone):
    """ViT of Heo et al., "Rotary Position Embedding for Vision Transformer" (ECCV 2024), its
    baselines, and other ViTs with rotary embedding: DINOv3, EVA-02, Perception Encoder, timm's.

    Takes images [B, in_channels, height, width] of any size from one patch up and returns one map
    [B, C, height // patch_size, width // patch_size] for each of ``out_indices``, without the
    prefix tokens. Parameter names are those of the published weights. Checked in tests/test_vit.py
    and tests/test_vit_families.py: against timm's independent ports with the same random weights,
    and windowed and relative-position blocks against tests/reference.py.

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
        use_ape: learned absolute position embedding, resized (bicubic) to the grid of each input.
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
            first n blocks.
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
        use_ape: bool | Default = DEFAULT,
        use_rel_pos: bool = False,
        rel_pos_img_size: int | tuple[int, int] = 1024,
        with_cls_token: bool | Default = DEFAULT,
        num_registers: int | Default = DEFAULT,
        window_size: WindowSetting = 14,
        mask_padding: bool = False,
        window_block_indexes: Sequence[int] = (),
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
            layer_scale_init_value=layer_scale_init_value,
            norm_cfg=norm_cfg,
        )
        self.arch = arch = find_vit_arch(self.ARCHS, arch, given)
        channels, depth, patch_size = arch.embed_dims, arch.depth, arch.patch_size
        if use_rel_pos and arch.rope is not None:
            raise ValueError(
                'use_rel_pos=True is the baseline without rotary embedding: set rope=None'
            )
        self.window_blocks = block_indexes('window_block_indexes', window_block_indexes, depth)
        if arch.num_prefix_tokens and (self.window_blocks or use_rel_pos):
            raise ValueError(
                'window_block_indexes and use_rel_pos need with_cls_token=False and '
                f'num_registers=0, got {arch.with_cls_token} and {arch.num_registers}'
            )
        self.out_indices = block_indexes('out_indices', out_indices, depth)
        if not -1 <= frozen_stages <= depth:
            raise ValueError(f'frozen_stages must be from -1 to {depth}, got {frozen_stages}')
        self.grid_size = tuple(side // patch_size for side in _pair(arch.img_size))
        global_grid = tuple(side // patch_size for side in _pair(rel_pos_img_size))
        rel_pos_sizes = [
            self.grid_size if index in self.window_blocks else global_grid for index in range(depth)
        ]
        self.set_window_size(window_size)
        self.frozen_stages, self.with_cp = frozen_stages, with_cp
        self.out_channels = [channels] * len(self.out_indices)
        self.out_strides = [patch_size] * len(self.out_indices)

        self.patch_embed = PatchEmbed(in_channels, channels, patch_size, bias=not arch.pre_norm)
        tokens = {
            'cls_token': int(arch.with_cls_token),
            'reg_token': arch.num_registers,
            'pos_embed': self.grid_size[0] * self.grid_size[1] if arch.use_ape else 0,
        }
        for name, number in tokens.items():
            token = nn.Parameter(torch.zeros(1, number, channels)) if number else None
            self.register_parameter(name, token)
        self.rope = build_rope(
            arch.rope, head_dim=channels // arch.num_heads, num_heads=arch.num_heads, depth=depth
        )
        self.set_rope_scaling(rope_scaling)
        self.norm_pre = build_norm(arch.norm_cfg, channels) if arch.pre_norm else None
        self.blocks = nn.ModuleList(
            ViTBlock(
                arch,
                rel_pos_size=rel_pos_sizes[index] if use_rel_pos else None,
                mask_padding=mask_padding,
                drop_path=drop_path_rate * index / max(depth - 1, 1),
            )
            for index in range(depth)
        )
        self.norm = build_norm(arch.norm_cfg, channels) if final_norm else None
        self.apply(init_transformer)
        for embedding in (self.cls_token, self.reg_token, self.pos_embed):
            if embedding is not None:
                nn.init.trunc_normal_(embedding, std=0.02)
        self.freeze(self.frozen_modules())

    def set_window_size(self, window_size: WindowSetting) -> None:
        """Change the window of a built model; the weights fit any."""
        self.window_size = check_window_setting(window_size)

    def set_rope_scaling(self, rope_scaling: dict | None) -> None:
        """Change the scaling of a built model."""
        self.rope_scaling = build_scaling(rope_scaling, self.grid_size, self.rope)

    def window_of(self, grid: Size) -> Size | None:
        """The window for a grid; None is the whole of it."""
        if self.window_size != 'auto':
            return self.window_size
        height, width = map(fitting_side, grid, self.grid_size)
        return height, width

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.frozen_stages < 0):
            x, grid = self.embed(image)  # [B, N, C]
        window_size = self.window_of(grid)
        rotations = self.rotations(grid, window_size, image.device)
        outs = []
        for index, block in enumerate(self.blocks):
            with torch.set_grad_enabled(torch.is_grad_enabled() and index >= self.frozen_stages):
                of_block = window_size if index in self.window_blocks else None
                x = self.run(block, x, grid, of_block, rotations[index])
            if index in self.out_indices:
                outs.append(self.output(x, grid, is_last=index == len(self.blocks) - 1))
        return tuple(outs)

    def embed(self, image: Tensor) -> tuple[Tensor, Size]:
        """Tokens [B, N, C], with position embedding and prefix if any, and the grid (H, W)."""
        x = self.patch_embed(image)  # [B, H, W, C]
        grid = tuple(x.shape[1:3])
        x = x.flatten(1, 2)
        if self.pos_embed is not None:
            x = x + resize_grid(self.pos_embed, self.grid_size, grid)
        prefix = [token for token in (self.cls_token, self.reg_token) if token is not None]
        if prefix:
            x = torch.cat([*(token.expand(len(x), -1, -1) for token in prefix), x], 1)
        if self.norm_pre is not None:
            x = self.norm_pre(x)
        return x, grid

    def rotations(
        self, grid: Size, window_size: Size | None, device: torch.device
    ) -> list[Rotation | None]:
        """The rotation of each block, on the grid of the image or of one window."""
        depth = len(self.blocks)
        if self.rope is None:
            return [None] * depth
        windowed = self.window_blocks if window_size else []
        others = [index for index in range(depth) if index not in windowed]
        in_windows = self.rope_scaling and replace(self.rope_scaling, factor=None)
        rotations: list[Rotation | None] = [None] * depth
        for blocks, (height, width), scaling in (
            (others, grid, self.rope_scaling),
            (windowed, window_size or grid, in_windows),
        ):
            of_blocks = self.rope(
                blocks,
                height=height,
                width=width,
                device=device,
                num_prefix_tokens=self.arch.num_prefix_tokens,
                scaling=scaling,
            )
            for index, rotation in zip(blocks, of_blocks, strict=True):
                rotations[index] = rotation
        return rotations

    def run(self, block: nn.Module, *inputs: Tensor | Size | Rotation | None) -> Tensor:
        if self.with_cp and torch.is_grad_enabled():
            return checkpoint(block, *inputs, use_reentrant=False)
        return block(*inputs)

    def output(self, x: Tensor, grid: Size, is_last: bool) -> Tensor:
        """Tokens [B, N, C] to a map [B, C, H, W]; the last block's output passes the final norm."""
        if is_last and self.norm is not None:
            x = self.norm(x)
        x = x[:, self.arch.num_prefix_tokens :]
        return to_map(x.unflatten(1, grid))

    def frozen_modules(self) -> list[nn.Module | nn.Parameter | None]:
        if self.frozen_stages < 0:
            return []
        return [
            self.patch_embed,
            self.cls_token,
            self.reg_token,
            self.pos_embed,
            self.norm_pre,
            *self.blocks[: self.frozen_stages],
        ]
