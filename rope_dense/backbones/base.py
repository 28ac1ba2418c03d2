"""The base class of the backbones: what a backbone declares about itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from mmengine.logging import print_log
from mmengine.model import BaseModule, PretrainedInit
from mmengine.registry import WEIGHT_INITIALIZERS
from torch import nn
from torch.fx.experimental import _config as shape_config

from ..rope import RopeScaling
from ..rope.grid import build_scaling
from ..utils.sizes import Size
from ..utils.validation import checked_settings, checked_size, is_integer, refuse
from .archs import FinalNorm, WindowSetting
from .block import Block
from .layers import PatchEmbed
from .lora import LORA_DEFAULTS, add_adapters, find_adapters, merge_adapters
from .position_bias import offset_counts
from .windows import checked_window_setting

FrozenStages = int | Literal['all']
OutputPrefix = Literal['cls', 'all'] | None
WindowPrefix = Literal['copy', 'global']
BIAS_TABLE = '.relative_position_bias_table'
RECOMPILE_LIMIT = 64  # of the forward of all blocks together


class Backbone(BaseModule):
    """An mmengine module whose frozen parts stay in evaluation mode, and which loads strictly.

    A backbone declares what the rest of the package asks; see "Add a backbone" in
    docs/extending.md.

    Attributes:
        ARCHS: the named architectures, and their settings.
        is_isotropic: whether all blocks have the same grid and the same channels, as in a ViT.
        patch_embed: makes tokens of images, and says how many: ``patch_embed.grid``.
        pretrain_grid: (H, W) tokens of the pre-training, of an image or of its windows.
        published_grid: the same of the published weights of the architecture; None: not known.
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
    published_grid: Size | None = None
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
            print_log(
                f'pretrained={pretrained!r} is not used: init_cfg is set',
                logger='current',
            )
        elif pretrained is not None:
            init_cfg = dict(type='Pretrained', checkpoint=pretrained)
        super().__init__(init_cfg)
        # So that a bad config fails here, not when training begins.
        pretrained_settings(init_cfg)

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

    @property
    def has_fixed_size(self) -> bool:
        """True if an export knows one size only, the one of an earlier image."""
        return False

    @abstractmethod
    def map_sizes(self, height: int, width: int) -> list[Size]:
        """(H, W) of each map that an image of ``height`` x ``width`` pixels becomes."""

    def position_tables(self) -> dict[str, Size]:
        """Keys of the tables over positions or offsets, and the grids (H, W) that they cover.

        By default these are the relative position bias tables, over offsets in ``pretrain_grid``.
        """
        grid = offset_counts(self.pretrain_grid)
        return {
            name: grid
            for name, _ in self.named_parameters()
            if name.endswith(BIAS_TABLE)
        }

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
        self.window_size = checked_window_setting(window_size)
        if self.rope_scaling is not None:  # which may depend on it
            self.set_rope_scaling(self.rope_scaling)

    def set_rope_scaling(self, rope_scaling: dict | RopeScaling | None) -> None:
        """Change the scaling of a built model.

        Raises:
            ValueError: a setting that is unknown, not allowed, or does not fit the embedding.
        """
        scaling = build_scaling(rope_scaling, self.pretrain_grid)
        changes = scaling is not None and scaling.changes
        for index, block in enumerate(self.ordered_blocks):
            if block.attn.rope is not None:
                block.attn.rope.set_scaling(self.scaling_of(index, scaling))
            elif changes:
                raise ValueError(
                    'rope_scaling needs a rotary embedding, and rope is None'
                )
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
        # Its analysis fails: pytorch/pytorch#181793.
        if torch.__version__.startswith('2.11.'):
            torch._inductor.config.triton.coalesce_tiling_analysis = False
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

        The output does not change yet. None adds nothing. For the settings see
        ``lora.add_adapters``; ValueError if they are not allowed, or there are adapters already.
        """
        if lora is None:
            return
        if self.lora is not None:
            raise ValueError(
                f'lora: the model has adapters already, {self.lora}: merge_lora first'
            )
        settings = {
            **LORA_DEFAULTS,
            **checked_settings('lora', lora, list(LORA_DEFAULTS)),
        }
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
        with random weights where a checkpoint does not fit. CheckpointError if the checkpoint
        cannot be fetched or read, or does not fit.
        """
        settings = pretrained_settings(self.init_cfg)
        if self.is_init or settings is None:
            super().init_weights()
            return
        WEIGHT_INITIALIZERS.build(dict(settings, type='StrictPretrained'))(self)
        self.is_init = True

    def _dump_init_info(self) -> None:
        """Nothing: of a backbone that stands alone mmengine would print each tensor."""


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
        raise ValueError(
            f"init_cfg: 'Pretrained' sets all weights, so it stands alone; got {cfgs}"
        )
    allowed = ('type', 'checkpoint', 'prefix', 'grid', 'channels', 'network')
    settings = checked_settings('init_cfg', cfgs[0], allowed)
    if settings.get('grid') is not None:
        settings = dict(settings, grid=checked_size('init_cfg: grid', settings['grid']))
    return {'checkpoint': None, **settings}


def backbone_of(model: nn.Module) -> Backbone:
    """The backbone of a model, which may be one; ValueError if it is none of this package."""
    if isinstance(model, Backbone):
        return model
    backbone = getattr(model, 'backbone', None)
    if not isinstance(backbone, Backbone):
        raise ValueError(
            f'the backbone must be one of rope_dense, it is {type(backbone).__name__}'
        )
    return backbone


def image_channels(model: nn.Module) -> int:
    """Channels of a model's images; 3 where the backbone is of another package."""
    backbone = getattr(model, 'backbone', model)
    return backbone.patch_embed.in_channels if isinstance(backbone, Backbone) else 3


def checked_frozen_stages(frozen_stages: object, number: int) -> int:
    """Return how many of ``number`` parts are frozen; -1: nothing frozen."""
    if isinstance(frozen_stages, str) and frozen_stages == 'all':
        return number
    if not is_integer(frozen_stages) or not -1 <= frozen_stages <= number:
        refuse(
            'frozen_stages', frozen_stages, f"'all' or an integer from -1 to {number}"
        )
    return int(frozen_stages)
