"""Swin transformer with rotary position embedding, for dense prediction.

Letters: B batch, H x W token grid, C channels, h heads, L blocks of a stage.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from mmengine.registry import MODELS
from torch import Tensor, nn
from torch.nn.modules.utils import _pair
from torch.utils.checkpoint import checkpoint

from ..rope import RopeScaling, Rotation
from .base import Backbone, build_rope, build_scaling
from .layers import PatchEmbed, block_indexes, build_norm, find_arch, init_transformer, to_map
from .shifted_windows import SwinBlock
from .windows import Size, WindowSetting, check_window_setting, pad_to_windows


@MODELS.register_module()
class RoPESwin(Backbone):
    """Swin of Heo et al., "Rotary Position Embedding for Vision Transformer" (ECCV 2024).

    With ``rope=None`` and ``use_rpb=True`` it is the baseline of Liu et al., "Swin Transformer"
    (ICCV 2021). Takes images [B, in_channels, height, width] of any size and returns one map
    [B, embed_dims * 2**i, H_i, W_i] for each stage i of ``out_indices``, normalised by ``norm{i}``.
    H_0 = ceil(height / patch_size) and H_i = ceil(H_{i-1} / 2); the image, odd grids and incomplete
    windows are padded with zeros at the bottom and right. Parameter names are those of the
    published weights, but for the frequencies: ``layers.{s}.rope.freqs`` [2, L, h, 16] holds those
    of all blocks of a stage. Weights do not depend on the window. Checked in tests/test_swin.py:
    the baseline against mmdet's SwinTransformer, every kind of block against attention with an
    explicit mask.

    Args:
        arch: 'tiny', 'small', 'base', or a dict of embed_dims, depths and num_heads (a number for
            each stage).
        rope: config of the rotary embedding (``MixedRoPE``, ``AxialRoPE`` or a class of your own),
            or None. The paper has theta 10 for mixed and 50 for axial.
        rope_scaling: for windows that differ from pre-training, see ``RopeScaling``; without its
            ``grid``. None leaves the frequencies as they are, as in the paper.
        use_rpb: learned relative position bias, with tables for ``pretrain_window_size``.
        window_size: tokens of a side of a window, an int or (height, width); every other block is
            shifted by half of it. 'auto' takes 1 / 32 of the image, as in the paper's evaluation
            at many resolutions; None attends to the whole map. See also ``set_window_size``.
        pretrain_window_size: window of the pre-training, an int or (height, width).
        shift_single_window: shift the window too where one covers the whole map, as detectron2 and
            mmdet do; False for classification, where the pre-training does not.
        mask_padding: keep padding out of attention. False as published: it takes part.
        patch_size: pixels of a side of a patch.
        in_channels: image channels.
        mlp_ratio: hidden channels of an MLP over C.
        qkv_bias: bias in the qkv projections.
        patch_norm: norm layers in the patch embedding and before each reduction between stages.
        drop_path_rate: stochastic depth of the last block; grows linearly from 0 at the first.
        out_indices: stages whose outputs are returned; negative ones count from the end.
        frozen_stages: -1 trains everything, 0 freezes the patch embedding, n also the first n
            stages with their reductions and output norms.
        with_cp: recompute each block in backward to save memory.
        norm_cfg: norm layers, in mmcv's form.
        init_cfg: mmengine initialisation, such as ``dict(type='Pretrained', checkpoint=...)``.

    Raises:
        ValueError: arguments that do not fit each other, named in the message.
    """

    ARCHS = {
        'tiny': dict(embed_dims=96, depths=(2, 2, 6, 2), num_heads=(3, 6, 12, 24)),
        'small': dict(embed_dims=96, depths=(2, 2, 18, 2), num_heads=(3, 6, 12, 24)),
        'base': dict(embed_dims=128, depths=(2, 2, 18, 2), num_heads=(4, 8, 16, 32)),
    }

    def __init__(
        self,
        arch: str | dict = 'tiny',
        rope: dict | None = dict(type='MixedRoPE', theta=10.0),
        rope_scaling: dict | None = None,
        use_rpb: bool = False,
        window_size: WindowSetting = 7,
        pretrain_window_size: int | Size = 7,
        shift_single_window: bool = True,
        mask_padding: bool = False,
        patch_size: int = 4,
        in_channels: int = 3,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        patch_norm: bool = True,
        drop_path_rate: float = 0.2,
        out_indices: Sequence[int] = (0, 1, 2, 3),
        frozen_stages: int = -1,
        with_cp: bool = False,
        norm_cfg: dict = dict(type='LN'),
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        sizes = find_arch(self.ARCHS, arch)
        depths, num_heads = sizes['depths'], sizes['num_heads']
        channels = [sizes['embed_dims'] * 2**stage for stage in range(len(depths))]
        check_sizes(channels, depths, num_heads)
        self.set_window_size(window_size)
        self.pretrain_window_size = tuple(_pair(pretrain_window_size))
        if min(self.pretrain_window_size) < 1:
            raise ValueError(
                f'pretrain_window_size must be 1 or more on each side, got {pretrain_window_size}'
            )
        if not -1 <= frozen_stages <= len(depths):
            raise ValueError(f'frozen_stages must be from -1 to {len(depths)}, got {frozen_stages}')
        self.out_indices = block_indexes('out_indices', out_indices, len(depths))
        self.frozen_stages = frozen_stages
        self.out_channels = [channels[index] for index in self.out_indices]
        self.out_strides = [patch_size * 2**index for index in self.out_indices]

        patch_norm_cfg = norm_cfg if patch_norm else None
        self.patch_embed = PaddedPatchEmbed(in_channels, channels[0], patch_size, patch_norm_cfg)
        rates = linear_rates(drop_path_rate, depths)
        last = len(depths) - 1
        self.layers = nn.ModuleList(
            SwinStage(
                channels[stage],
                num_heads[stage],
                rope=rope,
                bias_window=self.pretrain_window_size if use_rpb else None,
                shift_single_window=shift_single_window,
                mask_padding=mask_padding,
                mlp_ratio=mlp_ratio,
                qkv_bias=qkv_bias,
                drop_path_rates=rates[stage],
                downsample=PatchMerging(channels[stage], patch_norm_cfg) if stage < last else None,
                with_cp=with_cp,
                norm_cfg=norm_cfg,
            )
            for stage in range(len(depths))
        )
        for index in self.out_indices:
            self.add_module(f'norm{index}', build_norm(norm_cfg, channels[index]))
        self.set_rope_scaling(rope_scaling)
        self.apply(init_transformer)
        self.freeze(self.frozen_modules())

    def set_window_size(self, window_size: WindowSetting) -> None:
        """Change the window of a built model; the weights fit any."""
        self.window_size = check_window_setting(window_size)

    def set_rope_scaling(self, rope_scaling: dict | None) -> None:
        """Change the scaling of a built model."""
        rope = self.layers[0].rope
        self.rope_scaling = build_scaling(rope_scaling, self.pretrain_window_size, rope)

    def window_of(self, image: Tensor) -> Size | None:
        """The window for images [B, in_channels, height, width]; None is the whole map."""
        if self.window_size != 'auto':
            return self.window_size
        last_stride = self.patch_embed.proj.stride[0] * 2 ** (len(self.layers) - 1)
        height, width = image.shape[-2:]
        return -(-height // last_stride), -(-width // last_stride)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.frozen_stages < 0):
            x = self.patch_embed(image)  # [B, H, W, C]
        window_size = self.window_of(image)
        outs = []
        for index, stage in enumerate(self.layers):
            with torch.set_grad_enabled(torch.is_grad_enabled() and index >= self.frozen_stages):
                x = stage(x, window_size, self.rope_scaling)
                if index in self.out_indices:
                    outs.append(to_map(self.get_submodule(f'norm{index}')(x)))
                if stage.downsample is not None:
                    x = stage.downsample(x)
        return tuple(outs)

    def frozen_modules(self) -> list[nn.Module]:
        if self.frozen_stages < 0:
            return []
        norms = [index for index in self.out_indices if index < self.frozen_stages]
        return [
            self.patch_embed,
            *self.layers[: self.frozen_stages],
            *(self.get_submodule(f'norm{index}') for index in norms),
        ]


class PaddedPatchEmbed(PatchEmbed):
    """Patches of an image zero-padded to whole patches, to normalised tokens [B, H, W, C].

    Args:
        norm_cfg: norm layer, or None for no norm.
        others: see ``PatchEmbed``.
    """

    def __init__(
        self, in_channels: int, embed_dims: int, patch_size: int, norm_cfg: dict | None
    ) -> None:
        super().__init__(in_channels, embed_dims, patch_size)
        self.norm = build_norm(norm_cfg, embed_dims) if norm_cfg else nn.Identity()

    def forward(self, image: Tensor) -> Tensor:
        (height, width), (patch_size, _) = image.shape[-2:], self.proj.stride
        image = F.pad(image, (0, -width % patch_size, 0, -height % patch_size))
        return self.norm(super().forward(image))


class PatchMerging(nn.Module):
    """2 x 2 tokens to one of twice the channels, [B, H, W, C] to [B, H / 2, W / 2, 2 C].

    Odd grids are zero-padded. The four tokens are joined column by column, the order of the
    published weights (mmdet's differs).

    Args:
        embed_dims: C.
        norm_cfg: norm layer before the reduction, or None for no norm.
    """

    def __init__(self, embed_dims: int, norm_cfg: dict | None) -> None:
        super().__init__()
        self.norm = build_norm(norm_cfg, 4 * embed_dims) if norm_cfg else nn.Identity()
        self.reduction = nn.Linear(4 * embed_dims, 2 * embed_dims, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = pad_to_windows(x, (2, 2))
        x = x.unflatten(2, (-1, 2)).unflatten(1, (-1, 2))  # [B, H / 2, 2, W / 2, 2, C]
        x = x.permute(0, 1, 3, 4, 2, 5).flatten(3)  # [B, H / 2, W / 2, 4 C]
        return self.reduction(self.norm(x))


class SwinStage(nn.Module):
    """The blocks of one resolution, every other one shifted, on one rotary embedding.

    Owns the ``downsample`` that follows, for the published names; the backbone calls it.

    Args:
        bias_window: window of the relative position bias tables, None for no bias.
        drop_path_rates: stochastic depth of each block.
        downsample: reduction to the next stage, or None in the last.
        others: see ``RoPESwin``.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        *,
        rope: dict | None,
        bias_window: Size | None,
        shift_single_window: bool,
        mask_padding: bool,
        mlp_ratio: float,
        qkv_bias: bool,
        drop_path_rates: Sequence[float],
        downsample: PatchMerging | None,
        with_cp: bool,
        norm_cfg: dict,
    ) -> None:
        super().__init__()
        self.shift_single_window, self.with_cp = shift_single_window, with_cp
        self.rope = build_rope(
            rope, head_dim=embed_dims // num_heads, num_heads=num_heads, depth=len(drop_path_rates)
        )
        self.blocks = nn.ModuleList(
            SwinBlock(
                embed_dims,
                num_heads,
                bias_window=bias_window,
                mask_padding=mask_padding,
                mlp_ratio=mlp_ratio,
                qkv_bias=qkv_bias,
                drop_path_rate=rate,
                norm_cfg=norm_cfg,
            )
            for rate in drop_path_rates
        )
        self.downsample = downsample

    def forward(self, x: Tensor, window_size: Size | None, scaling: RopeScaling | None) -> Tensor:
        """[B, H, W, C] to [B, H, W, C], before ``downsample``; None: the map is one window."""
        grid = tuple(x.shape[1:3])
        shift = self.shift_of(grid, window_size)
        window_size = window_size or grid
        rotations = self.rotations(window_size, x.device, scaling)
        for index, (block, rotation) in enumerate(zip(self.blocks, rotations, strict=True)):
            inputs = x, window_size, shift if index % 2 else (0, 0), rotation
            if self.with_cp and torch.is_grad_enabled():
                x = checkpoint(block, *inputs, use_reentrant=False)
            else:
                x = block(*inputs)
        return x

    def shift_of(self, grid: Size, window_size: Size | None) -> Size:
        """Tokens that the windows of every other block are moved by."""
        if window_size is None:
            return 0, 0
        single = grid[0] <= window_size[0] and grid[1] <= window_size[1]
        if single and not self.shift_single_window:
            return 0, 0
        return window_size[0] // 2, window_size[1] // 2

    def rotations(
        self, window_size: Size, device: torch.device, scaling: RopeScaling | None
    ) -> list[Rotation | None]:
        """The rotation of each block, on the grid of one window."""
        if self.rope is None:
            return [None] * len(self.blocks)
        height, width = window_size
        blocks = range(len(self.blocks))
        return self.rope(blocks, height=height, width=width, device=device, scaling=scaling)


def linear_rates(rate: float, depths: Sequence[int]) -> list[list[float]]:
    """Linear from 0 in the first block of the first stage to ``rate`` in the last of the last."""
    total = sum(depths)
    rates = [rate * index / max(total - 1, 1) for index in range(total)]
    return [rates[sum(depths[:stage]) :][:depth] for stage, depth in enumerate(depths)]


def check_sizes(channels: Sequence[int], depths: Sequence[int], num_heads: Sequence[int]) -> None:
    """Raise ValueError unless each stage has its number of heads, which divides its channels."""
    if len(depths) != len(num_heads):
        raise ValueError(f'arch: depths {depths} and num_heads {num_heads} must be of one length')
    for stage, (of_stage, heads) in enumerate(zip(channels, num_heads, strict=True)):
        if of_stage % heads:
            raise ValueError(
                f'arch: stage {stage} has {of_stage} channels (embed_dims * {2**stage}), '
                f'not a multiple of its {heads} heads'
            )
