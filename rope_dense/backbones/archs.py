"""The architectures of ``RoPEViT``: sizes, and what distinguishes the published families.

Checked against the number of parameters and the outputs of timm's models in
tests/backbones/test_vit_families.py; SAM3's, which timm does not have, against transformers in
tests/checkpoints/test_sam3.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar, cast, get_args

from ..utils.validation import check_choice, check_integer, check_number, check_size, refuse
from .attention.attention import QkvBias
from .attention.windows import WindowSetting
from .mlp import MlpKind

Default = Literal['default']
DEFAULT: Default = 'default'  # as ``arch`` says; a string, so that configs can store it
FinalNorm = bool | Literal['all']
# True: learned, resized to the grid of the image; 'tile': learned, repeated; others: see RoPEViT.
Ape = bool | Literal['tile', 'sine', 'sine_conv']
SIZES = ('embed_dims', 'depth', 'num_heads')
Arch = TypeVar('Arch')


@dataclass(frozen=True)
class ViTArch:
    """One architecture. The defaults are those of RoPE-ViT (Heo et al., ECCV 2024).

    Attributes:
        embed_dims, depth, num_heads: channels C, blocks and heads.
        mlp: ``'gelu'``; ``'swiglu'``, gated by SiLU; ``'swiglu_norm'``, also with a norm before
            its last layer.
        attn_norm: normalise the output of attention, before its projection.
        pre_norm: normalise all tokens before the first block; the patch projection has no bias.
        others: see ``RoPEViT``.

    Raises:
        ValueError: values that are not allowed or do not fit each other.
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
    use_rpb: bool = False
    use_lpe: bool = False
    patch_norm: bool = False
    with_cls_token: bool = True
    num_registers: int = 0
    pre_norm: bool = False
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
        for name in ('use_rpb', 'use_lpe', 'patch_norm', 'with_cls_token', 'pre_norm', 'attn_norm'):
            check_choice(name, getattr(self, name), (True, False))
        check_choice('final_norm', self.final_norm, (True, False, 'all'))
        if self.layer_scale_init_value is not None:
            check_number('layer_scale_init_value', self.layer_scale_init_value)

    @property
    def grid(self) -> tuple[int, int]:
        """(height, width) of ``img_size`` in patches."""
        height, width = check_size('img_size', self.img_size)
        return height // self.patch_size, width // self.patch_size

    @property
    def learned_ape(self) -> bool:
        """Whether there is a table of positions."""
        return self.use_ape in (True, 'tile')

    @property
    def num_prefix_tokens(self) -> int:
        """Tokens before those of the grid: class token, then registers."""
        return int(self.with_cls_token) + self.num_registers


def find_vit_arch(
    archs: Mapping[str, dict], arch: str | dict, given: Mapping[str, object] | None = None
) -> ViTArch:
    """``find_arch`` of a ViT."""
    return find_arch(ViTArch, SIZES, archs, arch, given)


def find_arch(
    kind: type[Arch],
    sizes: Sequence[str],
    archs: Mapping[str, dict],
    arch: str | dict,
    given: Mapping[str, object] | None = None,
) -> Arch:
    """The architecture that ``arch`` names or gives, with the values of ``given`` that are not
    ``'default'`` in place of its own.

    Args:
        kind: a dataclass, ``ViTArch`` for instance.
        sizes: attributes that a dict must have.

    Raises:
        ValueError: an unknown name, a dict with missing or unknown keys, or values that do not fit.
    """
    settings = archs.get(arch) if isinstance(arch, str) else arch
    if not isinstance(settings, dict):
        refuse(
            'arch',
            arch,
            f'one of {", ".join(archs)} or a dict of {", ".join(sizes)} and other settings',
        )
    known = [setting.name for setting in fields(cast('Any', kind))]
    if missing := [name for name in sizes if name not in settings]:
        raise ValueError(f'arch lacks {missing}, got {arch!r}')
    if unknown := [name for name in settings if name not in known]:
        raise ValueError(f'arch has the unknown {unknown}, allowed are {known}')
    given = {name: value for name, value in (given or {}).items() if value != DEFAULT}
    return kind(**{**settings, **given})


TINY = dict(embed_dims=192, depth=12, num_heads=3)
SMALL = dict(embed_dims=384, depth=12, num_heads=6)
BASE = dict(embed_dims=768, depth=12, num_heads=12)
LARGE = dict(embed_dims=1024, depth=24, num_heads=16)

# DINOv3 (Simeoni et al., 2025): public hub code.
DINOV3 = dict(
    img_size=256,
    qkv_bias=False,  # where its code has q and v biases, the released ones are zero
    rope=dict(
        type='AxialRoPE',
        theta=100.0,
        series='periods',
        axes='yx',
        pair_layout='half',
        coordinates=dict(type='centres', rescale=2.0),
    ),
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
# Perception Encoder (Bolya et al., 2025); the reference grid is that of its image size, and
# positions are counted from 1 where there is a class token.
PE = dict(
    use_ape=True,
    pre_norm=True,
    layer_scale_init_value=None,
    norm_cfg=dict(type='LN', eps=1e-5),
)


def index_rope(reference: int, offset: float = 0.0) -> dict:
    coordinates = dict(type='index', offset=offset, reference=reference)
    return dict(type='AxialRoPE', theta=10000.0, coordinates=coordinates)


def pe_rope(reference: int) -> dict:
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
# images of 1008 pixels; ``img_size`` is that of its position embedding, a window of 24 patches.
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
# are the rows with a bias of the fused-attention paper, so its heads of 32 are taken to be those of
# the paper's ViTs, for all rows but k_rope = 16, which heads of 32 do not allow.
ISOTROPIC = dict(
    depth=12,
    rope=None,
    use_rpb=True,
    patch_norm=True,
    with_cls_token=False,
    layer_scale_init_value=None,
    norm_cfg=dict(type='LN', eps=1e-5),
)

ARCHS: dict[str, dict] = {
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
    'resformer_small': dict(
        SMALL, rope=None, use_ape='sine_conv', use_lpe=True, layer_scale_init_value=None
    ),
}
