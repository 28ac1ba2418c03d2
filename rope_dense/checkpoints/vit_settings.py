"""The settings of a plain ViT, attributes of ``ViTArch``, read off the shapes of its weights."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from ..backbones.archs import ViTArch, find_vit_arch
from ..backbones.attention import QkvBias
from ..backbones.mlp import MlpKind
from .keys import VIT_BLOCK, StateDict, has

PATCHES = 'patch_embed.proj.weight'
# What the name of an architecture stands for; the other settings are arguments of the backbone too.
KIND = ('embed_dims', 'depth', 'mlp', 'pre_norm', 'attn_norm')


@dataclass(frozen=True)
class ViTSettings:
    """See ``ViTArch``; ``hidden_dims`` are the channels inside an MLP, ``grid_side`` is that of a
    square ``pos_embed`` (0 for none)."""

    embed_dims: int
    depth: int
    mlp: MlpKind
    pre_norm: bool
    attn_norm: bool
    hidden_dims: int
    patch_size: int
    qkv_bias: QkvBias
    num_registers: int
    with_cls_token: bool
    layer_scale: bool
    patch_norm: bool
    use_lpe: bool
    grid_side: int

    @property
    def kind(self) -> tuple:
        return tuple(getattr(self, name) for name in KIND)

    def differences(self, other: ViTSettings) -> list[str]:
        """Names of the settings that differ."""
        return [
            setting.name
            for setting in fields(self)
            if getattr(self, setting.name) != getattr(other, setting.name)
        ]

    def __str__(self) -> str:
        words = [f'{self.embed_dims} channels and {self.depth} blocks']
        words += [f'mlp={self.mlp!r}'] if self.mlp != 'gelu' else []
        words += [f'{self.num_registers} registers'] if self.num_registers else []
        words += [name for name in ('pre_norm', 'attn_norm') if getattr(self, name)]
        return ', '.join(words)


def read_settings(weights: StateDict) -> ViTSettings | None:
    """The settings of weights in our layout; None if they are no complete ViT."""
    first, gate = (weights.get(f'blocks.0.mlp.{name}.weight') for name in ('fc1', 'fc1_g'))
    hidden = first if gate is None else gate
    if PATCHES not in weights or weights[PATCHES].ndim != 4 or hidden is None:
        return None
    normed = has(weights, r'blocks\.\d+\.mlp\.norm\.weight')
    registers = weights.get('reg_token')
    positions = weights.get('pos_embed')
    return ViTSettings(
        embed_dims=len(weights[PATCHES]),
        depth=sum(bool(re.fullmatch(VIT_BLOCK, key)) for key in weights),
        mlp='gelu' if gate is None else 'swiglu_norm' if normed else 'swiglu',
        pre_norm=has(weights, r'norm_pre\.weight'),
        attn_norm=has(weights, r'blocks\.\d+\.attn\.norm\.weight'),
        hidden_dims=len(hidden),
        patch_size=weights[PATCHES].shape[-1],
        qkv_bias=read_qkv_bias(weights),
        num_registers=0 if registers is None else registers.shape[1],
        with_cls_token='cls_token' in weights,
        layer_scale=has(weights, r'blocks\.\d+\.gamma_1'),
        patch_norm=has(weights, r'patch_embed\.norm\.weight'),
        use_lpe=has(weights, r'blocks\.\d+\.attn\.local\.weight'),
        grid_side=0 if positions is None else math.isqrt(positions.shape[-2]),
    )


def read_qkv_bias(weights: StateDict) -> QkvBias:
    """Biases of zero are none: the model can do without them."""
    if has(weights, r'blocks\.\d+\.attn\.qkv\.bias'):
        return True
    biases = [x for key, x in weights.items() if re.fullmatch(r'.+\.attn\.qkv\.[qv]_bias', key)]
    return 'qv' if any(x.is_meta or bool(x.any()) for x in biases) else False


def arch_settings(arch: ViTArch) -> ViTSettings:
    return ViTSettings(
        **{name: getattr(arch, name) for name in KIND},
        hidden_dims=int(arch.embed_dims * arch.mlp_ratio),
        patch_size=arch.patch_size,
        qkv_bias=arch.qkv_bias,
        num_registers=arch.num_registers,
        with_cls_token=arch.with_cls_token,
        layer_scale=arch.layer_scale_init_value is not None,
        patch_norm=arch.patch_norm,
        use_lpe=arch.use_lpe,
        grid_side=arch.grid[0] if arch.learned_ape else 0,
    )


def nearest_arch(archs: Mapping[str, dict], settings: ViTSettings) -> str | None:
    """The architecture of the same kind that shares most of the other settings. Biases, as they may
    be zero, do not count: DINOv3 comes before LingBot-Vision."""
    candidates = {name: arch_settings(find_vit_arch(archs, name)) for name in archs}
    same = [name for name, other in candidates.items() if other.kind == settings.kind]
    return min(
        same,
        key=lambda name: len({*settings.differences(candidates[name])} - {'qkv_bias'}),
        default=None,
    )
