"""The settings of a plain ViT, attributes of ``ViTArch``, read off its weights in our layout."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from ..backbones.archs import ViTArch, find_arch
from .keys import VIT_BLOCK, StateDict, has

PATCHES = 'patch_embed.proj.weight'
# What the name of an architecture stands for; the other settings are arguments of the backbone too.
KIND = ('embed_dims', 'depth', 'mlp', 'pre_norm', 'attn_norm')
Settings = dict[str, Any]  # under the names of READ


def hidden(weights: StateDict) -> int:
    """Channels inside an MLP."""
    gate, first = (f'blocks.0.mlp.{name}.weight' for name in ('fc1_g', 'fc1'))
    return len(weights[gate if gate in weights else first])


def mlp_kind(weights: StateDict) -> str:
    if 'blocks.0.mlp.fc1_g.weight' not in weights:
        return 'gelu'
    return 'swiglu_norm' if has(weights, r'blocks\.\d+\.mlp\.norm\.weight') else 'swiglu'


def qkv_bias(weights: StateDict) -> bool | str:
    """Biases of zero are none: the model can do without them."""
    if has(weights, r'blocks\.\d+\.attn\.qkv\.bias'):
        return True
    biases = [x for key, x in weights.items() if re.fullmatch(r'.+\.attn\.qkv\.[qv]_bias', key)]
    return 'qv' if any(x.is_meta or bool(x.any()) for x in biases) else False


READ: dict[str, Callable[[StateDict], object]] = {
    'embed_dims': lambda weights: len(weights[PATCHES]),
    'depth': lambda weights: sum(bool(re.fullmatch(VIT_BLOCK, key)) for key in weights),
    'mlp': mlp_kind,
    'pre_norm': lambda weights: 'norm_pre.weight' in weights,
    'attn_norm': lambda weights: has(weights, r'blocks\.\d+\.attn\.norm\.weight'),
    'mlp_ratio': lambda weights: hidden(weights) / len(weights[PATCHES]),
    'patch_size': lambda weights: weights[PATCHES].shape[-1],
    'qkv_bias': qkv_bias,
    'num_registers': lambda weights: weights['reg_token'].shape[1] if 'reg_token' in weights else 0,
    'with_cls_token': lambda weights: 'cls_token' in weights,
    'layer_scale': lambda weights: has(weights, r'blocks\.\d+\.gamma_1'),
    'patch_norm': lambda weights: 'patch_embed.norm.weight' in weights,
    'use_lpe': lambda weights: has(weights, r'blocks\.\d+\.attn\.local\.weight'),
    'grid_side': lambda weights: (  # of a square pos_embed, 0 for none
        math.isqrt(weights['pos_embed'].shape[-2]) if 'pos_embed' in weights else 0
    ),
}
# The same of an architecture, where it is not an attribute of that name.
OF_ARCH: dict[str, Callable[[ViTArch], object]] = {
    'mlp_ratio': lambda arch: int(arch.embed_dims * arch.mlp_ratio) / arch.embed_dims,
    'layer_scale': lambda arch: arch.layer_scale_init_value is not None,
    'grid_side': lambda arch: arch.grid[0] if arch.learned_ape else 0,
}


def read_settings(weights: StateDict) -> Settings | None:
    """The settings of weights in our layout; None if they are no complete ViT."""
    complete = has(weights, r'blocks\.0\.mlp\.(fc1|fc1_g)\.weight') and PATCHES in weights
    if not complete or weights[PATCHES].ndim != 4:
        return None
    return {name: read(weights) for name, read in READ.items()}


def arch_settings(arch: ViTArch) -> Settings:
    return {name: OF_ARCH.get(name, attrgetter(name))(arch) for name in READ}


def differences(settings: Settings, others: Settings) -> list[str]:
    """Names of the settings that differ."""
    return [name for name in READ if settings[name] != others[name]]


def kind_of(settings: Settings) -> list[object]:
    return [settings[name] for name in KIND]


def nearest_arch(archs: Mapping[str, dict], settings: Settings) -> str | None:
    """The architecture of the same kind that shares most of the other settings. Biases, as they may
    be zero, do not count: DINOv3 comes before LingBot-Vision."""
    candidates = {name: arch_settings(find_arch(ViTArch, archs, name)) for name in archs}
    same = [name for name, other in candidates.items() if kind_of(other) == kind_of(settings)]
    return min(
        same,
        key=lambda name: len({*differences(settings, candidates[name])} - {'qkv_bias'}),
        default=None,
    )
