"""The architectures of the backbones: sizes, and what distinguishes the published families.

An architecture is a dataclass (``ViTArch``, ``SwinArch``, ``NATArch``), and a table of named ones
has for each name a dict of its attributes; ``find_arch`` looks them up. The backbones check values.

Checked against the number of parameters and the outputs of timm's models in
tests/backbones/test_vit_families.py; those that timm does not have against transformers in
tests/checkpoints/test_sam3.py and tests/backbones/test_realtime_archs.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Literal, TypeVar, cast, get_args

from ..utils.validation import check_choice, check_integer, check_number, check_size
from .old_arguments import rename_attention

Default = Literal['default']
DEFAULT: Default = 'default'  # as ``arch`` says; a string, so that configs can store it
MlpKind = Literal['gelu', 'swiglu', 'swiglu_norm']
QkvBias = bool | Literal['qv']
FinalNorm = bool | Literal['all']
# True: learned, resized to the grid of the image; 'tile': learned, repeated; others: see RoPEViT.
Ape = bool | Literal['tile', 'sine', 'sine_conv']
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
        mlp: ``'gelu'``; ``'swiglu'``, gated by SiLU; ``'swiglu_norm'``, also with a norm before
            its last layer.
        mlp_ratio: hidden channels of an MLP over C.
        qkv_bias: bias in the qkv projections; 'qv' for none in the keys.
        rope: config of the rotary embedding (``MixedRoPE``, ``AxialRoPE``, ``LogAxialRoPE``,
            ``DirectionRoPE``, ``RasterRoPE`` or a class of your own), or None. Normalised
            coordinates span each window in window blocks, as in EVA-02's detectors, unless they
            have windows='map'.
        use_ape: learned absolute position embedding. True resizes it (bicubic) to the grid of each
            input, 'tile' repeats it over that grid (SAM3). 'sine' is sinusoidal, 'sine_conv'
            ResFormer's global position embedding: see ``SineEmbed`` and ``SineConvEmbed``.
        attention: config of the kind of attention: ``TableBias``, ``DecomposedBias``,
            ``ALiBi2D``, ``LookHere``, ``FIRE``, ``PaPE``, ``IsotropicPaPE``, ``LocalPosition``,
            ``LinearAttention`` or a class of your own; None for softmax attention with nothing but
            ``rope``.
        patch_norm: norm layer in the patch embedding.
        with_cls_token: a class token, a prefix token in all blocks.
        num_registers: further prefix tokens, R.
        pre_norm: normalise all tokens before the first block; the patch projection has no bias.
        conv_stem: ``ConvPatchEmbed`` in place of the patch projection; for patches of 16 pixels.
        attn_norm: normalise the output of attention, before its projection.
        window_size: tokens of a side of a window, an int or (height, width). 'auto' takes the side
            that pads the grid of an image least and is nearest to the pre-training grid, None
            attends globally. Weights do not depend on it; see also ``set_window_size``.
        window_block_indexes: blocks that attend within windows; the others attend globally.
        layer_scale_init_value: initial LayerScale of both branches, or None for no LayerScale. The
            published 1e-4 hides the blocks, and so position, in short trainings from random
            weights: take 1.0 for these.
        final_norm: normalise no output (False), the last block's (True), or each one with its
            prefix tokens ('all'), as DINOv3's ``get_intermediate_layers`` does, and on request
            Hugging Face's ``apply_layernorm`` and timm's ``forward_intermediates(norm=True)``.
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
    rope: dict | None = field(default_factory=lambda: dict(type='MixedRoPE', theta=10.0))
    use_ape: Ape = False
    attention: dict | None = None
    patch_norm: bool = False
    with_cls_token: bool = True
    num_registers: int = 0
    pre_norm: bool = False
    conv_stem: bool = False
    attn_norm: bool = False
    window_size: WindowSetting = 14
    window_block_indexes: Sequence[int] = ()
    layer_scale_init_value: float | None = 1e-4
    final_norm: FinalNorm = False
    norm_cfg: dict = field(default_factory=lambda: dict(type='LN', eps=1e-6))

    def __post_init__(self) -> None:
        for name in ('embed_dims', 'depth', 'num_heads', 'patch_size'):
            check_integer(name, getattr(self, name), 1)
        if self.embed_dims % self.num_heads:
            raise ValueError(
                f'arch: embed_dims {self.embed_dims} is not a multiple of num_heads '
                f'{self.num_heads}'
            )
        check_size('img_size', self.img_size, self.patch_size)
        check_choice('mlp', self.mlp, get_args(MlpKind))
        check_number('mlp_ratio', self.mlp_ratio, above=0)
        check_choice('qkv_bias', self.qkv_bias, (True, False, 'qv'))
        check_integer('num_registers', self.num_registers, 0)
        check_choice('use_ape', self.use_ape, (True, False, 'tile', 'sine', 'sine_conv'))
        if self.use_ape in ('sine', 'sine_conv') and self.embed_dims % 4:
            raise ValueError(
                f'arch: embed_dims must be a multiple of 4 (two axes, sine and cosine) for '
                f'use_ape={self.use_ape!r}, got {self.embed_dims}'
            )
        for name in ('patch_norm', 'with_cls_token', 'pre_norm', 'attn_norm', 'conv_stem'):
            check_choice(name, getattr(self, name), (True, False))
        if self.conv_stem and (self.patch_size != 16 or self.embed_dims % 8):
            raise ValueError(
                'arch: conv_stem needs patch_size=16 and embed_dims that is a multiple of 8, got '
                f'{self.patch_size} and {self.embed_dims}'
            )
        if self.conv_stem and (self.pre_norm or self.patch_norm):
            raise ValueError('arch: conv_stem has its own norms: set pre_norm and patch_norm False')
        check_choice('final_norm', self.final_norm, (True, False, 'all'))
        if self.layer_scale_init_value is not None:
            check_number('layer_scale_init_value', self.layer_scale_init_value)

    @property
    def grid(self) -> tuple[int, int]:
        """(height, width) of ``img_size`` in patches."""
        sides = self.img_size
        height, width = (sides, sides) if isinstance(sides, int) else sides
        return height // self.patch_size, width // self.patch_size

    @property
    def learned_ape(self) -> bool:
        """True if there is a table of positions."""
        return self.use_ape in (True, 'tile')

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
    known = {setting.name: is_required(setting) for setting in fields(cast('Any', kind))}
    sizes = [name for name, needed in known.items() if needed]
    settings = archs.get(arch) if isinstance(arch, str) else arch
    if not isinstance(settings, dict):
        names, keys = ', '.join(archs), ', '.join(sizes)
        raise ValueError(f'arch must be one of {names}, or a dict of {keys}, got {arch!r}')
    settings = rename_attention(settings)
    if wrong := [*({*sizes} - {*settings}), *({*settings} - {*known})]:
        keys = ', '.join(name for name in known if name not in sizes)
        raise ValueError(
            f'arch must have {", ".join(sizes)}{f" and may have {keys}" if keys else ""}; '
            f'missing or unknown: {sorted(wrong)}, got {arch!r}'
        )
    given = rename_attention(given or {}, settings.get('attention'))
    if wrong := sorted({*given} - {*known}):
        raise TypeError(f'unexpected keyword arguments {wrong}; an architecture has {[*known]}')
    return kind(**settings | {name: value for name, value in given.items() if value != DEFAULT})


def is_required(setting: Field) -> bool:
    """Return whether a field of a dataclass has no default."""
    return setting.default is MISSING and setting.default_factory is MISSING


TINY = dict(embed_dims=192, depth=12, num_heads=3)
SMALL = dict(embed_dims=384, depth=12, num_heads=6)
BASE = dict(embed_dims=768, depth=12, num_heads=12)
LARGE = dict(embed_dims=1024, depth=24, num_heads=16)

# DINOv3 (Simeoni et al., 2025): public hub code.
DINOV3_ROPE = dict(
    type='AxialRoPE',
    theta=100.0,
    series='periods',
    axes='yx',
    pair_layout='half',
    coordinates=dict(type='centres'),
)
DINOV3 = dict(
    img_size=256,
    qkv_bias=False,  # where its code has q and v biases, the released ones are zero
    rope=dict(DINOV3_ROPE, coordinates=dict(type='centres', rescale=2.0)),
    num_registers=4,
    layer_scale_init_value=1e-5,
    final_norm='all',  # as get_intermediate_layers in its code
    norm_cfg=dict(type='LN', eps=1e-5),
)
# LingBot-Vision (Fu et al., 2026): DINOv3 at another image size, with biases but for the giant.
LINGBOT = dict(DINOV3, img_size=512, qkv_bias='qv')
# EVA-02 (Fang et al., 2023) at its pre-training size.
EVA02_ROPE = dict(
    type='AxialRoPE', theta=10000.0, axes='yx', coordinates=dict(type='index', reference=16)
)
EVA02 = dict(
    patch_size=14,
    mlp='swiglu',
    mlp_ratio=8 / 3,
    qkv_bias='qv',
    rope=EVA02_ROPE,
    use_ape=True,
    layer_scale_init_value=None,
)
EVA02_NORMED = dict(EVA02, mlp='swiglu_norm')
# Perception Encoder (Bolya et al., 2025); the reference grid belongs to its image size,
# and positions are counted from 1 where there is a class token.
PE = dict(
    use_ape=True,
    pre_norm=True,
    layer_scale_init_value=None,
    norm_cfg=dict(type='LN', eps=1e-5),
)


def index_rope(reference: int, offset: float = 0.0) -> dict:
    """Return axial frequencies for indexes from ``offset``, scaled to a grid of ``reference``."""
    coordinates = dict(type='index', offset=offset, reference=reference)
    return dict(type='AxialRoPE', theta=10000.0, coordinates=coordinates)


def pe_rope(reference: int) -> dict:
    """Return the rope of Perception Encoders with a class token, which count from 1."""
    return index_rope(reference, offset=1.0)


PE_GIGANTIC = dict(
    PE,
    embed_dims=1536,
    depth=50,
    num_heads=16,
    img_size=448,
    patch_size=14,
    mlp_ratio=8960 / 1536,
    rope=index_rope(32),
    with_cls_token=False,
)
# The image encoder of SAM3 (Carion et al., 2025): Perception Encoder in windows. It was trained on
# images of 1008 pixels; ``img_size`` belongs to its position embedding: a window of 24 patches.
SAM3_GLOBAL = (7, 15, 23, 31)
SAM3 = dict(
    PE,
    embed_dims=1024,
    depth=32,
    num_heads=16,
    img_size=336,
    patch_size=14,
    mlp_ratio=4.625,
    rope=index_rope(24),
    use_ape='tile',
    with_cls_token=False,
    window_size=24,
    window_block_indexes=tuple(index for index in range(32) if index not in SAM3_GLOBAL),
)
# timm's own models, called vit_*_patch16_rope_reg*_gap_256 there.
ROPE_REG = dict(
    img_size=256,
    qkv_bias='qv',
    rope=EVA02_ROPE,
    with_cls_token=False,
    num_registers=1,
    layer_scale_init_value=1e-5,
)
# The plain ViT of the neighbourhood-attention papers: public code, ``isotropic.py``. Its weights
# are the rows with a bias of the fused-attention paper, whose ViTs are therefore taken to have its
# heads of 32 too, in all rows but k_rope = 16, which heads of 32 do not allow.
ISOTROPIC = dict(
    depth=12,
    rope=None,
    attention=dict(type='TableBias'),
    patch_norm=True,
    with_cls_token=False,
    layer_scale_init_value=None,
    norm_cfg=dict(type='LN', eps=1e-5),
)

# The small ViTs of real-time detectors, with the positions of DINOv3: DEIMv2 (Huang et al., 2025)
# and EdgeCrafter (2026), both of Intellindust-AI-Lab. DEIMv2-L and X are on DINOv3.
TINY_PLUS = dict(embed_dims=256, depth=12, num_heads=4)
REALTIME = dict(
    img_size=640,
    rope=DINOV3_ROPE,
    layer_scale_init_value=None,
)
ECVIT = dict(REALTIME, with_cls_token=False, num_registers=1, conv_stem=True)

VIT_ARCHS: dict[str, dict] = {
    'tiny': TINY,
    'small': SMALL,
    'base': BASE,
    'large': LARGE,
    'dinov3_tiny': dict(TINY, **DINOV3),  # of EUPE (Zhu et al., 2026), with qkv_bias='qv'
    'dinov3_small': dict(SMALL, **DINOV3),
    'dinov3_small_plus': dict(SMALL, **DINOV3, mlp='swiglu'),
    'dinov3_base': dict(BASE, **DINOV3),
    'dinov3_large': dict(LARGE, **DINOV3),
    'dinov3_huge_plus': dict(DINOV3, embed_dims=1280, depth=32, num_heads=20, mlp='swiglu'),
    'dinov3_7b': dict(DINOV3, embed_dims=4096, depth=40, num_heads=32, mlp='swiglu', mlp_ratio=2.0),
    'lingbot_small': dict(SMALL, **LINGBOT),
    'lingbot_base': dict(BASE, **LINGBOT),
    'lingbot_large': dict(LARGE, **LINGBOT),
    'lingbot_giant': dict(
        LINGBOT,
        embed_dims=1536,
        depth=40,
        num_heads=24,
        mlp='swiglu',
        mlp_ratio=8 / 3,
        qkv_bias=False,
    ),
    'eva02_tiny': dict(TINY, **EVA02),
    'eva02_small': dict(SMALL, **EVA02),
    'eva02_base': dict(BASE, **EVA02_NORMED),
    'eva02_large': dict(LARGE, **EVA02_NORMED),
    'eva02_clip_base': dict(BASE, **EVA02_NORMED, attn_norm=True) | dict(patch_size=16),
    'eva02_clip_large': dict(LARGE, **EVA02_NORMED, attn_norm=True),
    'pe_core_tiny': dict(TINY, **PE, img_size=384, rope=pe_rope(24)),
    'pe_core_small': dict(SMALL, **PE, img_size=384, rope=pe_rope(24)),
    'pe_core_base': dict(BASE, **PE, rope=pe_rope(14)),
    'pe_core_large': dict(LARGE, **PE, img_size=336, patch_size=14, rope=pe_rope(24)),
    'pe_core_gigantic': PE_GIGANTIC,
    'pe_spatial_tiny': dict(TINY, **PE, img_size=512, rope=pe_rope(32)),
    'pe_spatial_small': dict(SMALL, **PE, img_size=512, rope=pe_rope(32)),
    'pe_spatial_base': dict(BASE, **PE, img_size=512, rope=pe_rope(32)),
    'pe_spatial_large': dict(LARGE, **PE, img_size=448, patch_size=14, rope=pe_rope(32)),
    'pe_spatial_gigantic': dict(PE_GIGANTIC, layer_scale_init_value=0.1),
    'sam3': SAM3,
    'rope_reg1_medium': dict(ROPE_REG, embed_dims=512, depth=12, num_heads=8),
    'rope_reg1_mediumd': dict(ROPE_REG, embed_dims=512, depth=20, num_heads=8, qkv_bias=False),
    'rope_reg4_betwixt': dict(ROPE_REG, embed_dims=640, depth=12, num_heads=10, num_registers=4),
    'rope_reg1_base': dict(ROPE_REG, **BASE),
    'isotropic_small': dict(ISOTROPIC, embed_dims=384, num_heads=12),
    'isotropic_base': dict(ISOTROPIC, embed_dims=768, num_heads=24),
    'deimv2_tiny': dict(TINY, **REALTIME),
    'deimv2_tiny_plus': dict(TINY_PLUS, **REALTIME),
    'ecvit_tiny': dict(TINY, **ECVIT),
    'ecvit_tiny_plus': dict(TINY_PLUS, **ECVIT),
    'ecvit_small': dict(SMALL, **ECVIT),
    'ecvit_small_plus': dict(SMALL, **ECVIT, mlp_ratio=6.0),
    'resformer_small': dict(
        SMALL,
        rope=None,
        use_ape='sine_conv',
        attention=dict(type='LocalPosition'),
        layer_scale_init_value=None,
    ),
}

SWIN_TINY = dict(embed_dims=96, depths=(2, 2, 6, 2), num_heads=(3, 6, 12, 24))
SWIN_SMALL = dict(SWIN_TINY, depths=(2, 2, 18, 2))
SWIN_BASE = dict(SWIN_SMALL, embed_dims=128, num_heads=(4, 8, 16, 32))

SWIN_ARCHS: dict[str, dict] = {'tiny': SWIN_TINY, 'small': SWIN_SMALL, 'base': SWIN_BASE}

NAT_MINI = dict(embed_dims=64, depths=(3, 4, 6, 5), num_heads=(2, 4, 8, 16), mlp_ratio=3.0)
NAT_TINY = dict(NAT_MINI, depths=(3, 4, 18, 5))
NAT_SMALL = dict(
    embed_dims=96,
    depths=(3, 4, 18, 5),
    num_heads=(3, 6, 12, 24),
    mlp_ratio=2.0,
    drop_path_rate=0.3,
)
NAT_BASE = dict(NAT_SMALL, embed_dims=128, num_heads=(4, 8, 16, 32), drop_path_rate=0.5)
SCALED = dict(layer_scale_init_value=1e-5)
DILATED = dict(dilations=((1, 8), (1, 4), (1, 2), (1,)))
# With the sizes of Swin.
NAT_S_TINY = dict(SWIN_TINY, overlapping=False)
NAT_S_SMALL = dict(SWIN_SMALL, overlapping=False, drop_path_rate=0.3)
NAT_S_BASE = dict(SWIN_BASE, overlapping=False, drop_path_rate=0.5)

NAT_ARCHS: dict[str, dict] = {
    'nat_mini': NAT_MINI,
    'nat_tiny': NAT_TINY,
    'nat_small': dict(NAT_SMALL, **SCALED),
    'nat_base': dict(NAT_BASE, **SCALED),
    'dinat_mini': dict(NAT_MINI, **DILATED),
    'dinat_tiny': dict(NAT_TINY, **DILATED),
    'dinat_small': dict(NAT_SMALL, **DILATED),
    'dinat_base': dict(NAT_BASE, **SCALED, **DILATED),
    'nat_s_tiny': NAT_S_TINY,
    'nat_s_small': NAT_S_SMALL,
    'nat_s_base': NAT_S_BASE,
    'dinat_s_tiny': dict(NAT_S_TINY, **DILATED),
    'dinat_s_small': dict(NAT_S_SMALL, **DILATED),
    'dinat_s_base': dict(NAT_S_BASE, **DILATED),
}
