"""The attributes of an architecture, and the search for a named one."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal, TypeVar, cast, get_args

from ...utils.validation import (
    check_choice,
    checked_integer,
    checked_number,
    checked_size,
)

Default = Literal['default']
DEFAULT: Default = 'default'  # as ``arch`` says; a string, so that configs can store it
MlpKind = Literal['gelu', 'gelu_tanh', 'swiglu', 'swiglu_norm']
QkvBias = bool | Literal['qv']
FinalNorm = bool | Literal['all', 'separate']
# True: learned, resized to the grid of the image; others: see ViTArch.
ApeKind = Literal['bilinear', 'tile', 'sine', 'sine_conv']
Ape = bool | ApeKind
WindowSetting = int | tuple[int, int] | Literal['auto'] | None
Dilations = Sequence[Sequence[int]]
Arch = TypeVar('Arch')


@dataclass(frozen=True)
class ViTArch:
    """The architecture of a ``RoPEViT``. Defaults: Heo et al. (ECCV 2024).

    Attributes:
        embed_dims, depth, num_heads: channels C, blocks and heads.
        img_size: pre-training image size, an int or (height, width): the grid of ``pos_embed``, of
            ``rope_scaling`` and of the relative position tables of window blocks. It is not the
            size of the crops: trained from random weights with a scaling, set it to that.
        patch_size: pixels of a side of a patch.
        mlp: ``'gelu'``, or ``'gelu_tanh'`` for its approximation by tanh; ``'swiglu'``, gated by
            SiLU; ``'swiglu_norm'``, also with a norm before its last layer.
        mlp_ratio: hidden channels of an MLP over C.
        qkv_bias: bias in the qkv projections; 'qv' for none in the keys.
        rope: config of the rotary embedding, of a class of ``rope_dense.rope`` or of your own, or
            None. Normalised coordinates span each window in window blocks, as in EVA-02's
            detectors, unless they have windows='map'.
        use_ape: learned absolute position embedding. True resizes it (bicubic) to the grid of each
            input, 'bilinear' does so with corners on corners (Qwen3-VL), 'tile' repeats it over
            that grid (SAM3). 'sine' is sinusoidal, 'sine_conv' ResFormer's global position
            embedding: see ``SineEmbed`` and ``SineConvEmbed``.
        attention: config of the kind of attention: ``TableBias``, ``DecomposedBias``,
            ``LocalPosition``, ``RelativePrefix`` or a class of your own; None for softmax
            attention with nothing but ``rope``.
        patch_norm: norm layer in the patch embedding.
        with_cls_token: a class token, a prefix token in all blocks.
        num_registers: further prefix tokens.
        pre_norm: normalise all tokens before the first block; the patch projection has no bias.
        conv_stem: ``ConvPatchEmbed`` in place of the patch projection; for patches of 16 pixels.
        attn_norm: normalise the output of attention, before its projection.
        qk_norm: normalise the channels of each head's queries and keys, before the rotation.
        window_size: tokens of a side of a window, an int or (height, width). 'auto' takes the side
            that pads the grid of an image least and is nearest to the pre-training grid, None
            attends globally. Weights do not depend on it; see also ``set_window_size``.
        window_block_indexes: blocks that attend within windows; the others attend globally.
        layer_scale_init_value: initial LayerScale of the branches, or None for no LayerScale. The
            published 1e-4 hides the blocks, and so position, in short runs from random
            weights: take 1.0 for these.
        layer_scale_mlp: LayerScale of the branch of the MLP, too.
        final_norm: normalise no output (False), the last block's (True), or each one with its
            prefix tokens ('all'), as DINOv3's ``get_intermediate_layers`` does, and on request
            Hugging Face's ``apply_layernorm`` and timm's ``forward_intermediates(norm=True)``.
            'separate' gives each output of ``out_indices`` a norm of its own (V-JEPA 2.1):
            ``norm`` after the last block, ``norm{i}`` after block i.
        norm_cfg: norm layers, in mmcv's form.

    Raises:
        ValueError: values that are not allowed, or do not fit each other.
    """

    embed_dims: int
    depth: int
    num_heads: int
    img_size: int | tuple[int, int] = 224
    patch_size: int = 16
    mlp: MlpKind = 'gelu'
    mlp_ratio: float = 4.0
    qkv_bias: QkvBias = True
    rope: dict | None = field(
        default_factory=lambda: dict(type='MixedRoPE', theta=10.0)
    )
    use_ape: Ape = False
    attention: dict | None = None
    patch_norm: bool = False
    with_cls_token: bool = True
    num_registers: int = 0
    pre_norm: bool = False
    conv_stem: bool = False
    attn_norm: bool = False
    qk_norm: bool = False
    window_size: WindowSetting = 14
    window_block_indexes: Sequence[int] = ()
    layer_scale_init_value: float | None = 1e-4
    layer_scale_mlp: bool = True
    final_norm: FinalNorm = False
    norm_cfg: dict = field(default_factory=lambda: dict(type='LN', eps=1e-6))

    def __post_init__(self) -> None:
        for name in ('embed_dims', 'depth', 'num_heads', 'patch_size'):
            checked_integer(name, getattr(self, name), 1)
        if self.embed_dims % self.num_heads:
            raise ValueError(
                f'arch: embed_dims {self.embed_dims} is not a multiple of num_heads '
                f'{self.num_heads}'
            )
        checked_size('img_size', self.img_size, self.patch_size)
        check_choice('mlp', self.mlp, get_args(MlpKind))
        checked_number('mlp_ratio', self.mlp_ratio, above=0)
        check_choice('qkv_bias', self.qkv_bias, (True, False, 'qv'))
        checked_integer('num_registers', self.num_registers, 0)
        check_choice('use_ape', self.use_ape, (True, False, *get_args(ApeKind)))
        if self.use_ape in ('sine', 'sine_conv') and self.embed_dims % 4:
            raise ValueError(
                f'arch: embed_dims must be a multiple of 4 (two axes, sine and cosine) for '
                f'use_ape={self.use_ape!r}, got {self.embed_dims}'
            )
        for setting in fields(self):
            if setting.type is bool:
                check_choice(setting.name, getattr(self, setting.name), (True, False))
        if self.conv_stem and (self.patch_size != 16 or self.embed_dims % 8):
            raise ValueError(
                'arch: conv_stem needs patch_size=16 and embed_dims that is a multiple of 8, got '
                f'{self.patch_size} and {self.embed_dims}'
            )
        if self.conv_stem and (self.pre_norm or self.patch_norm):
            raise ValueError(
                'arch: conv_stem has its own norms: set pre_norm and patch_norm False'
            )
        check_choice('final_norm', self.final_norm, (True, False, 'all', 'separate'))
        if self.layer_scale_init_value is not None:
            checked_number('layer_scale_init_value', self.layer_scale_init_value)

    @property
    def grid(self) -> tuple[int, int]:
        """(height, width) of ``img_size`` in patches."""
        sides = self.img_size
        height, width = (sides, sides) if isinstance(sides, int) else sides
        return height // self.patch_size, width // self.patch_size

    @property
    def learned_ape(self) -> bool:
        """True if there is a table of positions."""
        return self.use_ape in (True, 'bilinear', 'tile')

    @property
    def num_prefix_tokens(self) -> int:
        """Tokens in front of the grid: class token, then registers."""
        return int(self.with_cls_token) + self.num_registers


@dataclass(frozen=True)
class SwinArch:
    """The architecture of a ``RoPESwin``.

    Attributes:
        embed_dims, depths, num_heads: channels C of the first stage, blocks and heads of each.
    """

    embed_dims: int
    depths: Sequence[int]
    num_heads: Sequence[int]


@dataclass(frozen=True)
class NATArch:
    """The architecture of a ``RoPENAT``.

    Attributes:
        embed_dims, depths, num_heads: as of ``SwinArch``.
        overlapping: 3 x 3 convolutions of stride 2 before the first stage and between stages (NAT
            and DiNAT); otherwise Swin's patches and reductions (NAT-s and DiNAT-s).
        others: see ``RoPENAT``.
    """

    embed_dims: int
    depths: Sequence[int]
    num_heads: Sequence[int]
    mlp_ratio: float = 4.0
    dilations: Dilations | None = None
    overlapping: bool = True
    layer_scale_init_value: float | None = None
    drop_path_rate: float = 0.2


def find_arch(
    kind: type[Arch],
    archs: Mapping[str, dict],
    arch: str | dict,
    given: Mapping[str, object] | None = None,
) -> Arch:
    """Return the architecture that ``arch`` names or describes.

    Args:
        kind: ``ViTArch``, ``SwinArch`` or ``NATArch``.
        archs: the named ones.
        arch: a name, or a dict of attributes of ``kind``.
        given: replace attributes of ``arch``, unless they are ``'default'``.

    Raises:
        ValueError: an unknown name, or a dict with missing or unknown keys.
        TypeError: ``given`` has unknown keys.
    """
    known = {
        x.name: x.default is MISSING and x.default_factory is MISSING
        for x in fields(cast('Any', kind))
    }
    sizes = [name for name, needed in known.items() if needed]
    settings = archs.get(arch) if isinstance(arch, str) else arch
    if not isinstance(settings, dict):
        names, keys = ', '.join(archs), ', '.join(sizes)
        raise ValueError(
            f'arch must be one of {names}, or a dict of {keys}, got {arch!r}'
        )
    if wrong := [*({*sizes} - {*settings}), *({*settings} - {*known})]:
        keys = ', '.join(name for name in known if name not in sizes)
        raise ValueError(
            f'arch must have {", ".join(sizes)}{f" and may have {keys}" if keys else ""}; '
            f'missing or unknown: {sorted(wrong)}, got {arch!r}'
        )
    given = given or {}
    if wrong := sorted({*given} - {*known}):
        raise TypeError(
            f'unexpected keyword arguments {wrong}; an architecture has {[*known]}'
        )
    return kind(
        **settings | {name: value for name, value in given.items() if value != DEFAULT}
    )
