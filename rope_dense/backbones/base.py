"""The base classes of the backbones, and what a backbone declares about itself.

Letters: B batch, H x W token grid, N = H W tokens, C channels.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from mmengine.logging import print_log
from mmengine.model import BaseModule, PretrainedInit
from mmengine.registry import MODELS, WEIGHT_INITIALIZERS
from torch import Tensor, nn
from torch.fx.experimental import _config as shape_config

from ..rope import (
    AxialRoPE,
    DirectionRoPE,
    LogAxialRoPE,
    MixedRoPE,
    OffsetAxialRoPE,
    RasterRoPE,
    RopeScaling,
    RotaryEmbedding,
    VideoRoPE,
)
from ..rope.grid import build_scaling
from ..utils.sizes import Size
from ..utils.validation import (
    check_indexes,
    check_integer,
    check_settings,
    check_size,
    is_integer,
    refuse,
)
from .archs import FinalNorm, WindowSetting
from .block import Block, Plan, recompute
from .layers import PatchEmbed, build_norm, module_list, to_map
from .lora import LORA_DEFAULTS, add_adapters, find_adapters, merge_adapters
from .position_bias import offset_grid
from .windows import check_window_setting

FrozenStages = int | Literal['all']
OutputPrefix = Literal['cls', 'all'] | None
WindowPrefix = Literal['copy', 'global']
BIAS_TABLE = '.relative_position_bias_table'
RECOMPILE_LIMIT = 64  # of the forward of all blocks together

# Registered here because rope/ depends on torch alone.
for embedding in (
    AxialRoPE,
    DirectionRoPE,
    LogAxialRoPE,
    MixedRoPE,
    OffsetAxialRoPE,
    RasterRoPE,
    VideoRoPE,
):
    MODELS.register_module(module=embedding)


class Backbone(BaseModule):
    """An mmengine module whose frozen parts stay in evaluation mode, and which loads strictly.

    A backbone declares what the rest of the package asks; see "Add a backbone" in
    docs/architecture.md.

    Attributes:
        ARCHS: the named architectures, and their settings.
        is_isotropic: whether all blocks have the same grid and the same channels, as in a ViT.
        patch_embed: makes tokens of images, and says how many: ``patch_embed.grid``.
        pretrain_grid: (H, W) tokens of the pre-training, of an image or of its windows.
        window_blocks: indexes of the ``ordered_blocks`` that attend within windows.
        window_size: (height, width) in tokens, 'auto', or None for the whole grid.
        rope_scaling: as last set, or None.
        with_cp: whether blocks are recomputed in backward.
        out_channels, out_strides: of each map.
        out_indices: of the blocks (isotropic) or stages whose maps are returned.
        num_prefix_tokens: class token and registers.
        window_prefix: what prefix tokens do in windows, see ``RoPEViT``.
        shift_single_window: see ``RoPESwin``; True where windows are not shifted.
        final_norm: which outputs are normalised: False for none, True for the last, 'all', or
            'separate' for all by norms of their own.
        output_prefix: prefix tokens that are returned with each map, see ``RoPEViT``.
        lora: settings of the adapters, or None without any.
        has_compiled_blocks: whether ``compile_blocks`` was called.
    """

    ARCHS: Mapping[str, dict] = {}
    is_isotropic: ClassVar[bool] = False
    num_prefix_tokens: int = 0
    window_prefix: WindowPrefix = 'copy'
    shift_single_window: bool = True
    final_norm: FinalNorm = 'all'
    output_prefix: OutputPrefix = None
    patch_embed: PatchEmbed
    out_indices: list[int]
    pretrain_grid: Size
    window_blocks: Sequence[int]
    with_cp: bool
    out_channels: list[int]
    out_strides: list[int]
    rope_scaling: dict | RopeScaling | None = None
    lora: dict | None = None
    has_compiled_blocks: bool = False
    is_init: bool

    def __init__(
        self, init_cfg: dict | list[dict] | None = None, pretrained: str | None = None
    ) -> None:
        """Take weights from ``pretrained`` if there is no ``init_cfg``.

        Segmentors of mmseg pass their own setting of that name, which may be meant for another
        backbone.
        """
        if pretrained is not None and init_cfg is not None:
            print_log(f'pretrained={pretrained!r} is not used: init_cfg is set', logger='current')
        elif pretrained is not None:
            init_cfg = dict(type='Pretrained', checkpoint=pretrained)
        super().__init__(init_cfg)
        pretrained_settings(init_cfg)  # so that a bad config fails here, not when training begins

    @property
    @abstractmethod
    def ordered_blocks(self) -> list[Block]:
        """All blocks, in the order in which tokens pass them."""

    @property
    def block_strides(self) -> list[int]:
        """Pixels from one token of a block to the next, for each of ``ordered_blocks``."""
        return [self.patch_embed.patch_size] * len(self.ordered_blocks)

    @property
    def has_windows(self) -> bool:
        """True if ``window_size`` makes a difference."""
        return bool(self.window_blocks)

    @abstractmethod
    def map_sizes(self, height: int, width: int) -> list[Size]:
        """(H, W) of each map that an image of ``height`` x ``width`` pixels becomes."""

    def position_tables(self) -> dict[str, Size]:
        """Keys of the tables over positions or offsets, and the grids (H, W) that they cover.

        By default these are the relative position bias tables, over offsets in ``pretrain_grid``.
        """
        grid = offset_grid(self.pretrain_grid)
        return {name: grid for name, _ in self.named_parameters() if name.endswith(BIAS_TABLE)}

    @abstractmethod
    def layer_of(self, name: str) -> int:
        """Return the layer of a parameter for layer-wise learning-rate decay.

        It is 0 before the first block, i + 1 for block i of ``ordered_blocks`` and the reduction
        after it, one more at the end.
        """

    def frozen_modules(self) -> Sequence[nn.Module | nn.Parameter | None]:
        """Parts that do not train; None stands for a part that the model does not have."""
        return []

    def set_window_size(self, window_size: WindowSetting) -> None:
        """Change the window of a built model; the weights fit any."""
        self.window_size = check_window_setting(window_size)
        if self.rope_scaling is not None:  # which may depend on it
            self.set_rope_scaling(self.rope_scaling)

    def set_rope_scaling(self, rope_scaling: dict | RopeScaling | None) -> None:
        """Change the scaling of a built model.

        Raises:
            ValueError: a setting that is unknown, not allowed, or does not fit the embedding.
        """
        scaling = build_scaling(rope_scaling, self.pretrain_grid)
        for index, block in enumerate(self.ordered_blocks):
            if block.attn.rope is not None:
                block.attn.rope.set_scaling(self.scaling_of(index, scaling))
            elif scaling is not None:
                raise ValueError('rope_scaling needs a rotary embedding, and rope is None')
        self.rope_scaling = rope_scaling

    def scaling_of(self, block: int, scaling: RopeScaling | None) -> RopeScaling | None:
        """The scaling of one of ``ordered_blocks``."""
        return scaling

    def compile_blocks(self, **options: Any) -> None:
        """Compile each block in place, for images of any size; the rest stays eager.

        Blocks of the same channels and the same kind of attention share a graph. The keys of
        ``state_dict`` stay as they are. Copies of the model are not compiled.

        torch.compile's settings are changed for the whole process: by default, sizes that are equal
        in the first images are taken to be equal in all, floats are variables first and a second
        compilation makes them constants, and after eight graphs of all blocks together the next one
        stays eager (Swin has four stages, in training and in evaluation).

        Args:
            options: of ``torch.compile``; ``dynamic`` is True unless given.
        """
        torch._dynamo.config.recompile_limit = RECOMPILE_LIMIT
        torch._dynamo.config.specialize_float = True
        shape_config.use_duck_shape = False
        self.has_compiled_blocks = True
        for block in self.ordered_blocks:
            block.compile(**{'dynamic': True, **options})

    def __getstate__(self) -> dict:
        """The state of copies, whose blocks are not compiled."""
        return {**super().__getstate__(), 'has_compiled_blocks': False}

    def freeze(self) -> None:
        """Freeze what ``frozen_modules`` names, and all but the adapters if there are any."""
        for part in self.frozen_modules():
            if part is not None:
                part.requires_grad_(False)
        if self.lora is not None:
            self.requires_grad_(False)
            for adapter in find_adapters(self).values():
                adapter.requires_grad_(True)
        self.train(self.training)

    def add_lora(self, lora: dict | None) -> None:
        """Give the linear layers of the blocks low-rank adapters and freeze everything else.

        The output does not change yet. None adds nothing.

        Args:
            lora: rank, alpha and targets, see ``lora.add_adapters``.

        Raises:
            ValueError: settings that are not allowed, or there are adapters already.
        """
        if lora is None:
            return
        if self.lora is not None:
            raise ValueError(f'lora: the model has adapters already, {self.lora}: merge_lora first')
        settings = {**LORA_DEFAULTS, **check_settings('lora', lora, list(LORA_DEFAULTS))}
        add_adapters(self.ordered_blocks, **settings)
        self.lora = dict(settings, targets=list(settings['targets']))
        self.freeze()

    def merge_lora(self) -> None:
        """Add the adapters to the weights of their layers, and remove them.

        The maps stay the same up to rounding, and frozen parts stay frozen.
        """
        merge_adapters(self)
        self.lora = None

    def train(self, mode: bool = True) -> Backbone:
        super().train(mode)
        for part in self.frozen_modules():
            if isinstance(part, nn.Module):
                part.eval()
        return self

    def init_weights(self) -> None:
        """Initialise as ``init_cfg`` says; pre-trained weights are loaded strictly.

        ``dict(type='Pretrained', checkpoint=...)`` may also have ``prefix``, ``grid``, ``channels``
        and ``network``, see ``checkpoints.load_pretrained``. mmengine's own loader would continue
        with random weights where a checkpoint does not fit.

        Raises:
            CheckpointError: the checkpoint cannot be fetched or read, or does not fit.
        """
        settings = pretrained_settings(self.init_cfg)
        if self.is_init or settings is None:
            super().init_weights()
            return
        WEIGHT_INITIALIZERS.build(dict(settings, type='StrictPretrained'))(self)
        self.is_init = True


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
        """Set the returned maps and the frozen stages.

        Args:
            channels: of each stage.
            patch_size: stride of the first stage.
            out_indices, frozen_stages: as a constructor takes them, with -1 and 'all'.
        """
        self.out_indices = check_indexes('out_indices', out_indices, len(channels))
        self.frozen_stages = check_frozen_stages(frozen_stages, len(channels))
        self.out_channels = [channels[index] for index in self.out_indices]
        self.out_strides = [patch_size * 2**index for index in self.out_indices]

    def add_norms(self, norm_cfg: dict) -> None:
        """Add the norm of each map, ``norm{i}``."""
        for index, channels in zip(self.out_indices, self.out_channels, strict=True):
            self.add_module(f'norm{index}', build_norm(norm_cfg, channels))

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        x, grid = self.patch_embed(image)  # [B, N, C]
        outs = []
        for index, stage in enumerate(self.layers):
            plans = self.block_plans(index, x, grid, image)
            for block, plan in zip(stage.blocks, plans, strict=True):
                x = recompute(block, x, grid, plan) if self.with_cp else block(x, grid, plan)
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

        Args:
            stage: its index.
            x: tokens, for their number of images and their device.
            grid: (H, W).
            image: [B, in_channels, height, width], for its size.
        """

    @property
    def ordered_blocks(self) -> list[Block]:
        return [block for stage in self.layers for block in stage.blocks]

    @property
    def block_strides(self) -> list[int]:
        patch_size = self.patch_embed.patch_size
        return [
            patch_size * 2**index for index, stage in enumerate(self.layers) for _ in stage.blocks
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


def check_stages(embed_dims: int, depths: Sequence[int], num_heads: Sequence[int]) -> list[int]:
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
            check_integer(f'arch: {name}', number, 1)
    if len(depths) != len(num_heads):
        raise ValueError(f'arch: depths {depths} and num_heads {num_heads} must be of one length')
    widths = [embed_dims * 2**stage for stage in range(len(depths))]
    for stage, (channels, heads) in enumerate(zip(widths, num_heads, strict=True)):
        if channels % heads:
            raise ValueError(
                f'arch: stage {stage} has {channels} channels (embed_dims * {2**stage}), '
                f'not a multiple of its {heads} heads'
            )
    return widths


def pretrained_settings(init_cfg: dict | list[dict] | None) -> dict | None:
    """Return the initialisation with pre-trained weights; None for another.

    Raises:
        ValueError: it has settings that ``Backbone.init_weights`` does not know, or stands beside
            others.
    """
    cfgs = [init_cfg] if isinstance(init_cfg, dict) else init_cfg or []
    if not any(cfg['type'] in ('Pretrained', PretrainedInit) for cfg in cfgs):
        return None
    if len(cfgs) > 1:
        raise ValueError(f"init_cfg: 'Pretrained' sets all weights, so it stands alone; got {cfgs}")
    allowed = ('type', 'checkpoint', 'prefix', 'grid', 'channels', 'network')
    settings = check_settings('init_cfg', cfgs[0], allowed)
    if settings.get('grid') is not None:
        settings = dict(settings, grid=check_size('init_cfg: grid', settings['grid']))
    return {'checkpoint': None, **settings}


def backbone_of(model: nn.Module) -> Backbone:
    """The backbone of a model, which may be one.

    Raises:
        ValueError: it is none of this package.
    """
    backbone = model if isinstance(model, Backbone) else getattr(model, 'backbone', None)
    if not isinstance(backbone, Backbone):
        raise ValueError(f'the backbone must be one of rope_dense, it is {type(backbone).__name__}')
    return backbone


def image_channels(model: nn.Module) -> int:
    """Channels of a model's images; 3 where the backbone is of another package."""
    backbone = model if isinstance(model, Backbone) else getattr(model, 'backbone', None)
    return backbone.patch_embed.in_channels if isinstance(backbone, Backbone) else 3


def check_frozen_stages(frozen_stages: object, number: int) -> int:
    """Return how many of ``number`` parts are frozen; -1: nothing frozen."""
    if isinstance(frozen_stages, str) and frozen_stages == 'all':
        return number
    if not is_integer(frozen_stages) or not -1 <= frozen_stages <= number:
        refuse('frozen_stages', frozen_stages, f"'all' or an integer from -1 to {number}")
    return int(frozen_stages)


def build_rope(rope: dict | None, *, head_dim: int, num_heads: int) -> RotaryEmbedding | None:
    """Build the rotary embedding of one block from the config ``rope``.

    Raises:
        ValueError: not a config of one.
    """
    if rope is None:
        return None
    if not isinstance(rope, dict) or 'type' not in rope:
        refuse(
            'rope', rope, "None or a dict with a type, such as dict(type='MixedRoPE', theta=10.0)"
        )
    return MODELS.build(dict(rope, head_dim=head_dim, num_heads=num_heads))
