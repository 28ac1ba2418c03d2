"""Neighbourhood attention transformers with rotary position embedding, for dense prediction.

Letters: B images, H x W token grid, N = H W tokens, C channels, h heads, K x K tokens of a
neighbourhood.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import get_args

from mmengine.registry import MODELS
from torch import Tensor, nn

from ..rope import RopeScaling
from ..utils.sizes import Size
from ..utils.validation import check_choice, checked_integer, checked_number, refuse
from .archs import (
    DEFAULT,
    NAT_ARCHS,
    Default,
    Dilations,
    NATArch,
    WindowSetting,
    find_arch,
)
from .base import FrozenStages
from .block import Block, Mlp
from .from_config import build_rope
from .layers import (
    PatchEmbed,
    build_norm,
    linear_rates,
    to_map,
)
from .neighbours import (
    Backend,
    NeighbourPlan,
    build_neighbour_attention,
    checked_kernel_size,
    neighbour_plan,
)
from .staged import Stage, StagedBackbone, checked_stage_channels
from .swin import PatchMerging


@MODELS.register_module()
class RoPENAT(StagedBackbone):
    """NAT and DiNAT with rotary embedding.

    Hassani et al., "Neighborhood Attention Transformer" (CVPR 2023); Hassani and Shi, "Dilated
    Neighborhood Attention Transformer" (2022); the embedding as in "Revisiting Positional
    Information in Transformers in the Era of Fused Attention".

    Takes images [B, in_channels, height, width] of any size and returns one map
    [B, embed_dims * 2**i, H_i, W_i] for each stage i of ``out_indices``, normalised by ``norm{i}``.
    H_0 = ceil(height / 4) and H_i = ceil(H_{i-1} / 2). With ``rope=None`` and
    ``attention=dict(type='TableBias')`` it is the published model, whose weights load, see
    docs/checkpoints.md. Checked in test_nat.py against the published order of layers, written out,
    with attention token by token.

    Args:
        arch: a name in ``ARCHS`` (NAT and DiNAT of four sizes, NAT-s and DiNAT-s of three), or a
            dict of embed_dims, depths, num_heads and any other attribute of ``NATArch``. Arguments
            left at 'default' are as it says.
        rope: config of the rotary embedding, or None. Its coordinates are over the whole map.
        rope_scaling: for neighbourhoods that are larger than in pre-training, see ``RopeScaling``;
            without its ``grid``. None leaves the frequencies as they are.
        attention: ``dict(type='TableBias')`` for a learned relative position bias, with tables for
            ``pretrain_kernel_size``, or None.
        kernel_size: tokens of a side of a neighbourhood, odd, an int or (height, width). Weights do
            not depend on it. A built model has it as ``window_size``, too; see ``set_window_size``.
        pretrain_kernel_size: kernel size of the pre-training; ``pretrain_grid`` of a built model.
        dilations: for each stage the dilations of its blocks, repeated over them. Weights do not
            depend on them; the published detectors and segmentors have larger ones than their
            pre-training.
        backend: what computes attention, see ``NeighbourAttention``.
        layer_scale_init_value: initial LayerScale of both branches, or None for no LayerScale.
        in_channels, qkv_bias, drop_path_rate, out_indices, frozen_stages: see ``RoPESwin``.
        lora, with_cp, norm_cfg, init_cfg, pretrained: see ``RoPEViT``.

    Raises:
        ValueError: arguments that do not fit each other, named in the message.
    """

    ARCHS = NAT_ARCHS

    window_size: Size

    def __init__(
        self,
        arch: str | dict = 'nat_tiny',
        rope: dict | None = dict(type='LogAxialRoPE', k_rope=2),
        rope_scaling: dict | None = None,
        attention: dict | None = None,
        kernel_size: int | Size = 7,
        pretrain_kernel_size: int | Size = 7,
        dilations: Dilations | Default = DEFAULT,
        backend: Backend = 'auto',
        in_channels: int = 3,
        qkv_bias: bool = True,
        layer_scale_init_value: float | Default | None = DEFAULT,
        drop_path_rate: float | Default = DEFAULT,
        out_indices: Sequence[int] = (0, 1, 2, 3),
        frozen_stages: FrozenStages = -1,
        lora: dict | None = None,
        with_cp: bool = False,
        norm_cfg: dict = dict(type='LN', eps=1e-5),
        init_cfg: dict | None = None,
        pretrained: str | None = None,
    ) -> None:
        super().__init__(init_cfg, pretrained)
        given = dict(
            dilations=dilations,
            layer_scale_init_value=layer_scale_init_value,
            drop_path_rate=drop_path_rate,
        )
        self.arch = nat_arch = find_arch(NATArch, self.ARCHS, arch, given)
        channels = stage_channels(nat_arch)
        checked_integer('in_channels', in_channels, 1)
        check_choice('qkv_bias', qkv_bias, (True, False))
        check_choice('backend', backend, get_args(Backend))
        self.window_size = checked_kernel_size('kernel_size', kernel_size)
        self.pretrain_grid = checked_kernel_size(
            'pretrain_kernel_size', pretrain_kernel_size
        )
        self.block_dilations = [
            [cycle[block % len(cycle)] for block in range(depth)]
            for cycle, depth in zip(
                nat_arch.dilations or [(1,)] * len(channels),
                nat_arch.depths,
                strict=True,
            )
        ]
        self.window_blocks = range(sum(nat_arch.depths))
        self.with_cp = with_cp
        self.set_outputs(channels, 4, out_indices, frozen_stages)

        stem = (
            ConvStem
            if nat_arch.overlapping
            else partial(PatchEmbed, patch_size=4, pad=True)
        )
        merging = ConvMerging if nat_arch.overlapping else PatchMerging
        self.patch_embed = stem(in_channels, channels[0], norm_cfg=norm_cfg)
        rates = iter(linear_rates(nat_arch.drop_path_rate, sum(nat_arch.depths)))
        stages = []
        for stage, (width, heads) in enumerate(
            zip(channels, nat_arch.num_heads, strict=True)
        ):
            blocks = []
            for _ in range(nat_arch.depths[stage]):
                attn = build_neighbour_attention(
                    attention,
                    self.pretrain_grid,
                    embed_dims=width,
                    num_heads=heads,
                    qkv_bias=qkv_bias,
                    rope=build_rope(rope, head_dim=width // heads, num_heads=heads),
                    backend=backend,
                )
                mlp = Mlp(width, int(width * nat_arch.mlp_ratio))
                scale = nat_arch.layer_scale_init_value
                blocks.append(Block(attn, mlp, norm_cfg, next(rates), scale))
            is_last = stage == len(channels) - 1
            stages.append(Stage(blocks, None if is_last else merging(width, norm_cfg)))
        self.add_stages(stages, norm_cfg, rope_scaling, lora)

    def block_plans(
        self, stage: int, x: Tensor, grid: Size, image: Tensor
    ) -> list[NeighbourPlan]:
        dilations = self.block_dilations[stage]
        plans = {
            dilation: neighbour_plan(
                grid,
                self.window_size,
                dilation,
                uniform=self.has_compiled_blocks,
                device=x.device,
            )
            for dilation in set(dilations)
        }
        return [plans[dilation] for dilation in dilations]

    @property
    def kernel_size(self) -> Size:
        """Tokens of a neighbourhood, (height, width): the ``window_size`` of other backbones."""
        return self.window_size

    @property
    def pretrain_kernel_size(self) -> Size:
        """The ``kernel_size`` of the pre-training: the ``pretrain_grid`` of other backbones."""
        return self.pretrain_grid

    def set_window_size(self, window_size: WindowSetting) -> None:
        """Change the kernel size of a built model; ValueError for anything but odd sides."""
        self.window_size = checked_kernel_size('kernel_size', window_size)
        self.set_rope_scaling(self.rope_scaling)

    def scaling_of(self, block: int, scaling: RopeScaling | None) -> RopeScaling | None:
        """Return the scaling of a block: the default factor comes from the kernel size.

        Positions count across the whole map, but attention reaches as far as a neighbourhood.
        """
        if scaling is None or scaling.factor is not None:
            return scaling
        return replace(scaling, factor=scaling.factors(*self.kernel_size))


class ConvStem(PatchEmbed):
    """Two 3 x 3 convolutions of stride 2: a token for each 4 x 4 pixels, which overlap."""

    def __init__(
        self, in_channels: int, embed_dims: int, norm_cfg: dict | None
    ) -> None:
        super().__init__(
            in_channels, embed_dims, patch_size=4, pad=True, norm_cfg=norm_cfg
        )
        self.proj = nn.Sequential(
            nn.Conv2d(in_channels, embed_dims // 2, 3, stride=2, padding=1),
            nn.Conv2d(embed_dims // 2, embed_dims, 3, stride=2, padding=1),
        )

    def project(self, image: Tensor) -> Tensor:
        return self.proj(image)  # it rounds sides up itself: no padding here


class ConvMerging(nn.Module):
    """A 3 x 3 convolution of stride 2 to twice the channels, and a norm."""

    def __init__(self, embed_dims: int, norm_cfg: dict) -> None:
        super().__init__()
        self.reduction = nn.Conv2d(
            embed_dims, 2 * embed_dims, 3, stride=2, padding=1, bias=False
        )
        self.norm = build_norm(norm_cfg, 2 * embed_dims)

    def forward(self, x: Tensor, grid: Size) -> tuple[Tensor, Size]:
        """[B, H W, C] and (H, W) to [B, H / 2 W / 2, 2 C] and (H / 2, W / 2), rounded up."""
        x = self.reduction(to_map(x, grid))
        height, width = x.shape[2:]
        return self.norm(x.flatten(2).transpose(1, 2).contiguous()), (height, width)


def stage_channels(arch: NATArch) -> list[int]:
    """Return the channels of each stage.

    Raises:
        ValueError: values that are not allowed or do not fit each other.
    """
    checked_number('mlp_ratio', arch.mlp_ratio, above=0)
    checked_number('drop_path_rate', arch.drop_path_rate, 0, below=1)
    check_choice('overlapping', arch.overlapping, (True, False))
    if arch.layer_scale_init_value is not None:
        checked_number('layer_scale_init_value', arch.layer_scale_init_value)
    channels = checked_stage_channels(arch.embed_dims, arch.depths, arch.num_heads)
    if arch.dilations is not None:
        check_dilations(arch.dilations, len(channels))
    return channels


def check_dilations(dilations: object, stages: int) -> None:
    """Raise ValueError unless there are dilations of 1 or more for each stage."""
    if not isinstance(dilations, (tuple, list)) or len(dilations) != stages:
        refuse('dilations', dilations, f'{stages} sequences, one for each stage')
    for of_stage in dilations:
        if not isinstance(of_stage, (tuple, list)) or not of_stage:
            refuse('dilations', dilations, 'a sequence of dilations for each stage')
        for dilation in of_stage:
            checked_integer('dilations', dilation, 1)
