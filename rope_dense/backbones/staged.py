"""Backbones in stages, with half the resolution and twice the channels from one to the next.

Letters: B images, H x W token grid, N = H W tokens, C channels.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from torch import Tensor, nn

from ..utils.sizes import Size
from ..utils.validation import checked_indexes, checked_integer, refuse
from .base import Backbone, FrozenStages, checked_frozen_stages
from .block import Block, Plan, recompute
from .layers import build_norm, init_transformer, module_list, to_map


class StagedBackbone(Backbone):
    """Stages of blocks, each with half the resolution and twice the channels of the one before.

    Takes images [B, in_channels, height, width] of any size and returns one map
    [B, embed_dims * 2**i, H_i, W_i] for each stage i of ``out_indices``, normalised by ``norm{i}``.
    H_0 = ceil(height / patch_size) and H_i = ceil(H_{i-1} / 2).

    Attributes:
        layers: the stages.
        out_indices: stages whose maps are returned.
        frozen_stages: -1 trains everything, 0 freezes the patch embedding, n also the first n
            stages with their reductions and output norms.
    """

    layers: Sequence[Stage]

    def set_outputs(
        self,
        channels: Sequence[int],
        patch_size: int,
        out_indices: Sequence[int],
        frozen_stages: FrozenStages,
    ) -> None:
        """Set the returned maps and the frozen stages, as a constructor takes them."""
        self.out_indices = checked_indexes('out_indices', out_indices, len(channels))
        self.frozen_stages = checked_frozen_stages(frozen_stages, len(channels))
        self.out_channels = [channels[index] for index in self.out_indices]
        self.out_strides = [patch_size * 2**index for index in self.out_indices]

    def add_stages(
        self,
        stages: Sequence[Stage],
        norm_cfg: dict,
        rope_scaling: dict | None,
        lora: dict | None,
    ) -> None:
        """Complete a constructor: the stages, and the norm of each map, ``norm{i}``."""
        self.layers = module_list(stages)
        for index, channels in zip(self.out_indices, self.out_channels, strict=True):
            self.add_module(f'norm{index}', build_norm(norm_cfg, channels))
        self.set_rope_scaling(rope_scaling)
        self.apply(init_transformer)
        self.freeze()
        self.add_lora(lora)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        x, grid = self.patch_embed(image)  # [B, N, C]
        outs = []
        for index, stage in enumerate(self.layers):
            plans = self.block_plans(index, x, grid, image)
            for block, plan in zip(stage.blocks, plans, strict=True):
                x = (
                    recompute(block, x, grid, plan)
                    if self.with_cp
                    else block(x, grid, plan)
                )
            if index in self.out_indices:
                outs.append(to_map(self.get_submodule(f'norm{index}')(x), grid))
            if stage.downsample is not None:
                x, grid = stage.downsample(x, grid)
        return tuple(outs)

    @abstractmethod
    def block_plans(
        self, stage: int, x: Tensor, grid: Size, image: Tensor
    ) -> Sequence[Plan | None]:
        """The plan of each block of a stage, for tokens [B, N, C]; None to attend globally.

        The number of images and the device are as of ``x``, the size as of ``image`` [B, c, H, W].
        """

    @property
    def ordered_blocks(self) -> list[Block]:
        return [block for stage in self.layers for block in stage.blocks]

    @property
    def block_strides(self) -> list[int]:
        patch_size = self.patch_embed.patch_size
        return [
            patch_size * 2**index
            for index, stage in enumerate(self.layers)
            for _ in stage.blocks
        ]

    def map_sizes(self, height: int, width: int) -> list[Size]:
        grids = [self.patch_embed.grid(height, width)]
        while len(grids) < len(self.layers):
            grids.append((-(-grids[-1][0] // 2), -(-grids[-1][1] // 2)))
        return [grids[index] for index in self.out_indices]

    def layer_of(self, name: str) -> int:
        first, *rest = name.split('.')
        depths = [len(stage.blocks) for stage in self.layers]
        if first != 'layers':
            return 0 if first == 'patch_embed' else sum(depths) + 1
        stage, part, *rest = rest
        before = sum(depths[: int(stage)])
        return before + (int(rest[0]) + 1 if part == 'blocks' else depths[int(stage)])

    def frozen_modules(self) -> list[nn.Module]:
        if self.frozen_stages < 0:
            return []
        norms = [index for index in self.out_indices if index < self.frozen_stages]
        return [
            self.patch_embed,
            *self.layers[: self.frozen_stages],
            *(self.get_submodule(f'norm{index}') for index in norms),
        ]


class Stage(nn.Module):
    """The blocks of one resolution and the reduction after them, under their published names.

    The backbone calls them.
    """

    def __init__(self, blocks: Sequence[Block], downsample: nn.Module | None) -> None:
        super().__init__()
        self.blocks = module_list(blocks)
        self.downsample = downsample


def checked_stage_channels(
    embed_dims: int, depths: Sequence[int], num_heads: Sequence[int]
) -> list[int]:
    """Return the channels of each stage.

    Raises:
        ValueError: sizes that are not allowed or do not fit each other.
    """
    for name, numbers in dict(depths=depths, num_heads=num_heads).items():
        if not isinstance(numbers, (tuple, list)) or not numbers:
            refuse(f'arch: {name}', numbers, 'a number for each stage')
    named = dict(embed_dims=[embed_dims], depths=depths, num_heads=num_heads)
    for name, numbers in named.items():
        for number in numbers:
            checked_integer(f'arch: {name}', number, 1)
    if len(depths) != len(num_heads):
        raise ValueError(
            f'arch: depths {depths} and num_heads {num_heads} must be of one length'
        )
    widths = [embed_dims * 2**stage for stage in range(len(depths))]
    for stage, (channels, heads) in enumerate(zip(widths, num_heads, strict=True)):
        if channels % heads:
            raise ValueError(
                f'arch: stage {stage} has {channels} channels (embed_dims * {2**stage}), '
                f'not a multiple of its {heads} heads'
            )
    return widths
