"""The options of a backbone, read off its weights, and the nearest named architectures."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from ..backbones.base import Backbone
from .keys import SWIN_BLOCK, SWIN_FREQS, VIT_BLOCK, VIT_FREQS, StateDict, has

PATCHES = 'patch_embed.proj.weight'
STEM = 'patch_embed.proj.1.weight'  # of NAT and DiNAT
CONV_STEM = 'patch_embed.convs.0.conv.weight'  # of ECViT
ROUNDING = 1e-5  # radians per patch; that of published axial frequencies is 4e-8

Options = dict[str, object]


def shape_of(weights: StateDict, pattern: str) -> tuple[int, ...]:
    """Shape of the first weight whose key the pattern matches; () without one."""
    return next((tuple(x.shape) for key, x in weights.items() if re.fullmatch(pattern, key)), ())


def sizes_of(weights: StateDict) -> tuple[int | None, int | tuple[int, ...]]:
    """Channels of the first stage, and the number of blocks, or of blocks of each stage."""
    stages = defaultdict(set)
    for key in weights:
        if match := re.fullmatch(SWIN_BLOCK, key):
            stages[match[1]].add(match[2])
    blocks = sum(bool(re.fullmatch(VIT_BLOCK, key)) for key in weights)
    channels = (*shape_of(weights, f'{re.escape(PATCHES)}|{re.escape(STEM)}'), None)[0]
    depths = tuple(len(stages[stage]) for stage in sorted(stages, key=int))
    return channels, depths or blocks


def sizes_of_arch(arch: dict) -> tuple[int, int | tuple[int, ...]]:
    """The same of an architecture."""
    return arch['embed_dims'], arch['depth'] if 'depth' in arch else tuple(arch['depths'])


def has_sizes(arch: dict, weights: StateDict) -> bool:
    """True if weights in our layout have the channels and blocks of an architecture."""
    return sizes_of_arch(arch) == sizes_of(weights)


def patch_size(weights: StateDict) -> int | None:
    """Pixels of a side of a patch; 16 for the stem of ECViT, None for others of convolutions."""
    if CONV_STEM in weights:
        return 16
    return (*shape_of(weights, re.escape(PATCHES)), None)[3:4][0] if PATCHES in weights else None


def in_channels(weights: StateDict) -> int:
    """Channels of the image; 0 for a stem of NAT."""
    name = CONV_STEM if CONV_STEM in weights else PATCHES
    return (*shape_of(weights, re.escape(name)), 0, 0)[1]


def mlp_kind(weights: StateDict) -> str:
    """As ``ViTArch.mlp``."""
    if not has(weights, r'.+\.mlp\.fc1_g\.weight'):
        return 'gelu'
    return 'swiglu_norm' if has(weights, r'.+\.mlp\.norm\.weight') else 'swiglu'


def mlp_ratio(weights: StateDict) -> float | None:
    """Channels inside an MLP over its channels."""
    shape = shape_of(weights, r'.+\.mlp\.(fc1|fc1_g)\.weight')
    return shape[0] / shape[1] if len(shape) == 2 and shape[1] else None


def qkv_bias(weights: StateDict) -> bool | str:
    """As ``ViTArch.qkv_bias``; biases of zero are none, as the model can do without them."""
    if has(weights, r'.+\.attn\.qkv\.bias'):
        return True
    biases = [x for key, x in weights.items() if re.fullmatch(r'.+\.attn\.qkv\.[qv]_bias', key)]
    return 'qv' if any(x.is_meta or bool(x.any()) for x in biases) else False


def use_ape(weights: StateDict) -> bool | str:
    """As ``ViTArch.use_ape``, as far as weights tell."""
    return 'sine_conv' if has(weights, r'sine_embed\..+') else 'pos_embed' in weights


def img_size(weights: StateDict) -> int | None:
    """Pixels of a side of the square that pos_embed covers."""
    shape, size = shape_of(weights, 'pos_embed'), patch_size(weights)
    return math.isqrt(shape[-2]) * size if len(shape) > 1 and size else None


def present(pattern: str) -> tuple[str, Callable[[StateDict], bool]]:
    """An option that is true where the weights have keys of this pattern."""
    return pattern, lambda weights: has(weights, pattern)


# From an option to the pattern of the keys that it decides on, and to how it is read off weights.
OPTIONS: dict[str, tuple[str, Callable[[StateDict], object]]] = {
    'embed_dims': ('.+', lambda weights: sizes_of(weights)[0]),
    'depth': ('.+', lambda weights: sizes_of(weights)[1]),
    'mlp': (r'.+\.mlp\..+', mlp_kind),
    'mlp_ratio': (r'.+\.mlp\..+', mlp_ratio),
    'patch_size': (r'patch_embed\..+', patch_size),
    'conv_stem': present(r'patch_embed\.convs\..+'),
    'in_channels': (r'patch_embed\..+', in_channels),
    'patch_norm': present(r'patch_embed\.norm\..+'),
    'pre_norm': ('norm_pre.+|patch_embed.proj.bias', lambda weights: has(weights, 'norm_pre.+')),
    'attn_norm': present(r'.+\.attn\.norm\..+'),
    'qkv_bias': (r'.+\.qkv\.([qkv]_)?bias', qkv_bias),
    'with_cls_token': present('cls_token'),
    'num_registers': ('reg_token', lambda weights: (*shape_of(weights, 'reg_token'), 0, 0)[1]),
    'use_ape': (r'pos_embed|sine_embed\..+', use_ape),
    'img_size': ('pos_embed', img_size),
    'use_lpe': present(r'.+\.attn\.local\..+'),
    'use_rpb': present(r'.+\.relative_position_bias_table'),
    'use_rel_pos': present(r'.+\.rel_pos_[hw]'),
    'layer_scale_init_value': (
        r'.+\.gamma_[12]',
        lambda weights: 1e-4 if has(weights, r'.+\.gamma_[12]') else None,
    ),
    'final_norm': present(r'norm\..+'),
    'lora': (
        r'.+\.lora\.(down|up)',
        lambda weights: dict(rank=x[0]) if (x := shape_of(weights, r'.+\.lora\.down')) else None,
    ),
    'out_indices': (
        r'norm\d+\..+',
        lambda weights: sorted({int(x[4]) for x in weights if re.match(r'norm\d\.', x)}),
    ),
}


def read_options(weights: StateDict) -> Options:
    """The options of weights in our layout, under the names of ``OPTIONS``."""
    return {name: read(weights) for name, (_, read) in OPTIONS.items()}


def differing(options: Options, others: Options, names: Iterable[str] = OPTIONS) -> list[str]:
    """Names of the options that differ."""
    return [name for name in names if options[name] != others[name]]


def shapes_of(model: Backbone) -> StateDict:
    """The weights of a model without their values."""
    return {key: x.to('meta') for key, x in model.state_dict().items()}


def nearest_archs(
    backbone: type[Backbone], options: Options, names: Iterable[str] = OPTIONS
) -> dict[str, Options]:
    """The named architectures of the same channels and blocks that differ in the fewest options.

    Args:
        backbone: class.
        options: of the weights.
        names: of the options that are compared first; then all are.

    Returns:
        From the name to the options of the architecture.
    """
    sizes, named, counts = (options['embed_dims'], options['depth']), {}, {}
    for name, arch in backbone.ARCHS.items():
        if sizes_of_arch(arch) == sizes:
            with torch.device('meta'):
                model = backbone(arch=name)  # type: ignore[call-arg]  # all with ARCHS have it
            named[name] = read_options(model.state_dict())
            counts[name] = [len(differing(named[name], options, of)) for of in (names, OPTIONS)]
    return {name: named[name] for name in named if counts[name] == min(counts.values())}


def axial_theta(freqs: Tensor) -> float | None:
    """The theta of axial frequencies [2, h, P]; None if they mix the axes."""
    if freqs.is_meta or freqs.ndim != 3 or len(freqs) != 2 or freqs.shape[-1] < 4:
        return None
    (x, y), pairs = freqs.float(), freqs.shape[-1]
    if max(x[..., pairs // 2 :].abs().max(), y[..., : pairs // 2].abs().max()) > ROUNDING:
        return None
    return float(x[0, 1]) ** (-pairs / 2)


def learned_rope(weights: StateDict) -> dict | None:
    """The config of the embedding that has the frequencies of the weights; None without any."""
    key = next((key for key in weights if re.fullmatch(f'{VIT_FREQS}|{SWIN_FREQS}', key)), None)
    if key is None:
        return None
    theta = axial_theta(weights[key])
    if theta is not None:
        return dict(type='AxialRoPE', theta=float(f'{theta:.4g}'))
    freqs, qkv = weights[key].shape, shape_of(weights, key.replace('rope.freqs', 'qkv.weight'))
    # A learned axial embedding has pairs for a quarter of the channels of a head, a mixed for half.
    if len(freqs) == 3 and len(qkv) == 2 and 4 * freqs[1] * freqs[2] == qkv[1]:
        return dict(type='AxialRoPE', learned=True)
    return dict(type='MixedRoPE')
