"""Swin transformer with rotary position embedding, for dense prediction.

Letters: B images, H x W token grid, N = H W tokens, C channels, h heads.
"""

from collections.abc import Sequence
from operator import le

from mmengine.registry import MODELS
from torch import Tensor, nn

from ..utils.sizes import Size
from ..utils.validation import (
    check_choice,
    checked_integer,
    checked_number,
    checked_size,
)
from .archs import SWIN_ARCHS, SwinArch, WindowSetting, find_arch
from .attention import Place
from .base import FrozenStages
from .block import Block, Mlp
from .from_config import build_attention, build_rope
from .layers import (
    PatchEmbed,
    build_norm,
    linear_rates,
    pad_bottom_right,
)
from .staged import Stage, StagedBackbone, checked_stage_channels
from .windows import WindowPlan, shifted_plan


@MODELS.register_module()
class RoPESwin(StagedBackbone):
    """Swin of Heo et al., "Rotary Position Embedding for Vision Transformer" (ECCV 2024).

    With ``rope=None`` and ``attention=dict(type='TableBias')`` it is the baseline of Liu et al.,
    "Swin Transformer" (ICCV 2021).

    Takes images [B, in_channels, height, width] of any size and returns one map
    [B, embed_dims * 2**i, H_i, W_i] for each stage i of ``out_indices``, normalised by ``norm{i}``.
    H_0 = ceil(height / patch_size) and H_i = ceil(H_{i-1} / 2); the image, odd grids and incomplete
    windows are padded with zeros at the bottom and right. Weights do not depend on the window.
    Checked in test_swin.py: the baseline against mmdet's SwinTransformer, every kind of block
    against attention with an explicit mask.

    Args:
        arch: 'tiny', 'small', 'base', or a dict of embed_dims, depths and num_heads (a number for
            each stage).
        rope: config of the rotary embedding, see ``ViTArch``, or None. Theta is 10 for mixed and 50
            for axial in the released code; the paper's text has 100 for axial.
        rope_scaling: for windows that differ from pre-training, see ``RopeScaling``; without its
            ``grid``. None leaves the frequencies as they are, as in the paper.
        attention: config of the kind of attention, such as ``TableBias``; see ``ViTArch``.
        window_size: tokens of a side of a window, an int or (height, width); every other block is
            shifted by half of it. 'auto' takes 1 / 32 of the image, as in the paper's evaluation
            at many resolutions; None attends to the whole map. See also ``set_window_size``.
        pretrain_window_size: window of the pre-training, an int or (height, width).
        shift_single_window: shift the window too where one covers the whole map, as detectron2 and
            mmdet do; False for classification, where the pre-training does not.
        mask_padding: exclude padding from attention. False as published: it takes part.
        patch_size: pixels of a side of a patch.
        in_channels: image channels.
        mlp_ratio: hidden channels of an MLP over C.
        qkv_bias: bias in the qkv projections.
        patch_norm: norm layers in the patch embedding and before each reduction between stages.
        drop_path_rate: stochastic depth of the last block; grows linearly from 0 at the first.
        out_indices: stages whose outputs are returned; negative ones count from the end.
        frozen_stages: -1 trains everything, 0 freezes the patch embedding, n also the first n
            stages with their reductions and output norms, 'all' everything. What is frozen stays in
            evaluation mode: no drop path, no augmentation of coordinates.
        lora, with_cp, norm_cfg, init_cfg, pretrained: see ``RoPEViT``.

    Raises:
        ValueError: arguments that do not fit each other, named in the message.
    """

    ARCHS = SWIN_ARCHS

    def __init__(
        self,
        arch: str | dict = 'tiny',
        rope: dict | None = dict(type='MixedRoPE', theta=10.0),
        rope_scaling: dict | None = None,
        attention: dict | None = None,
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
        frozen_stages: FrozenStages = -1,
        lora: dict | None = None,
        with_cp: bool = False,
        norm_cfg: dict = dict(type='LN'),
        init_cfg: dict | None = None,
        pretrained: str | None = None,
    ) -> None:
        super().__init__(init_cfg, pretrained)
        self.arch = find_arch(SwinArch, self.ARCHS, arch)
        depths, num_heads = self.arch.depths, self.arch.num_heads
        channels = checked_stage_channels(self.arch.embed_dims, depths, num_heads)
        checked_integer('patch_size', patch_size, 1)
        checked_integer('in_channels', in_channels, 1)
        checked_number('mlp_ratio', mlp_ratio, above=0)
        checked_number('drop_path_rate', drop_path_rate, 0, below=1)
        switches = dict(mask_padding=mask_padding, qkv_bias=qkv_bias)
        switches |= dict(patch_norm=patch_norm, shift_single_window=shift_single_window)
        for name, value in switches.items():
            check_choice(name, value, (True, False))
        self.set_window_size(window_size)
        self.pretrain_grid = checked_size('pretrain_window_size', pretrain_window_size)
        self.window_blocks = range(sum(depths))
        self.set_outputs(channels, patch_size, out_indices, frozen_stages)
        self.shift_single_window, self.mask_padding = shift_single_window, mask_padding
        self.with_cp = with_cp

        patch_norm_cfg = norm_cfg if patch_norm else None
        self.patch_embed = PatchEmbed(
            in_channels, channels[0], patch_size, pad=True, norm_cfg=patch_norm_cfg
        )
        rates = enumerate(linear_rates(drop_path_rate, sum(depths)))
        stages = []
        for stage, (width, heads) in enumerate(zip(channels, num_heads, strict=True)):
            blocks = []
            for _ in range(depths[stage]):
                index, rate = next(rates)
                attn = build_attention(
                    attention,
                    Place(
                        self.pretrain_grid,
                        patch_size * 2**stage,
                        in_windows=True,
                        index=index,
                        depth=sum(depths),
                    ),
                    embed_dims=width,
                    num_heads=heads,
                    qkv_bias=qkv_bias,
                    rope=build_rope(rope, head_dim=width // heads, num_heads=heads),
                )
                mlp = Mlp(width, int(width * mlp_ratio))
                blocks.append(Block(attn, mlp, norm_cfg, rate))
            is_last = stage == len(depths) - 1
            downsample = None if is_last else PatchMerging(width, patch_norm_cfg)
            stages.append(Stage(blocks, downsample))
        self.add_stages(stages, norm_cfg, rope_scaling, lora)

    def block_plans(
        self, stage: int, x: Tensor, grid: Size, image: Tensor
    ) -> list[WindowPlan | None]:
        """Odd blocks have shifted windows."""
        depth, window_size = self.arch.depths[stage], self.window_size
        if window_size == 'auto':
            last_stride = self.block_strides[-1]
            window_size = (
                -(-image.shape[2] // last_stride),
                -(-image.shape[3] // last_stride),
            )
        if window_size is None:
            return [None] * depth
        shift = window_size[0] // 2, window_size[1] // 2
        if not self.shift_single_window and all(map(le, grid, window_size)):
            shift = 0, 0
        plans = [
            shifted_plan(
                x.shape[0],
                grid,
                window_size,
                shift=by,
                mask_padding=self.mask_padding,
                uniform=self.has_compiled_blocks,
                device=x.device,
            )
            for by in ((0, 0), shift)
        ]
        return [plans[block % 2] for block in range(depth)]


class PatchMerging(nn.Module):
    """2 x 2 tokens to one of twice the channels.

    Odd grids are zero-padded. The four tokens are concatenated column by column, the order of the
    published weights (mmdet's differs).

    Args:
        embed_dims: C.
        norm_cfg: norm layer before the reduction, or None for no norm.
    """

    def __init__(self, embed_dims: int, norm_cfg: dict | None) -> None:
        super().__init__()
        self.norm = build_norm(norm_cfg, 4 * embed_dims) if norm_cfg else nn.Identity()
        self.reduction = nn.Linear(4 * embed_dims, 2 * embed_dims, bias=False)

    def forward(self, x: Tensor, grid: Size) -> tuple[Tensor, Size]:
        """[B, H W, C] and (H, W) to [B, H / 2 W / 2, 2 C] and (H / 2, W / 2), rounded up."""
        (height, width), x = grid, x.unflatten(1, grid)
        grid = (height + 1) // 2, (width + 1) // 2
        x = pad_bottom_right(x, 1, 2 * grid[0] - height, 2 * grid[1] - width)
        x = x.view(x.shape[0], grid[0], 2, grid[1], 2, x.shape[-1])
        # [B, H / 2 W / 2, 4 C]
        x = x.permute(0, 1, 3, 4, 2, 5).flatten(3).flatten(1, 2)
        return self.reduction(self.norm(x)), grid
