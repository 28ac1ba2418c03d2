"""Named architectures that weights look like, and options read off weights."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable

import torch
from torch import Tensor

from ..backbones import RoPENAT, RoPESwin, RoPEViT
from ..backbones.base import Backbone
from .keys import SWIN_BLOCK, SWIN_FREQS, VIT_BLOCK, VIT_FREQS, StateDict, has

PATCHES = 'patch_embed.proj.weight'
STEM = 'patch_embed.proj.1.weight'  # of NAT and DiNAT
CONV_STEM = 'patch_embed.convs.0.conv.weight'  # of ECViT
ROUNDING = 1e-5  # radians per patch; that of published axial frequencies is 4e-8

Shapes = set[tuple[str, torch.Size]]


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


def has_any(pattern: str) -> Callable[[StateDict], bool]:
    """A function that is true of weights with keys of this pattern."""
    return lambda weights: has(weights, pattern)


# How an option is read off weights, by its name in ``ViTArch``.
OPTIONS: dict[str, Callable[[StateDict], object]] = {
    'embed_dims': lambda weights: sizes_of(weights)[0],
    'depth': lambda weights: sizes_of(weights)[1],
    'mlp': mlp_kind,
    'mlp_ratio': mlp_ratio,
    'patch_size': patch_size,
    'conv_stem': has_any(r'patch_embed\.convs\..+'),
    'patch_norm': has_any(r'patch_embed\.norm\..+'),
    'pre_norm': has_any('norm_pre.+'),
    'attn_norm': has_any(r'.+\.attn\.norm\..+'),
    'qkv_bias': qkv_bias,
    'with_cls_token': has_any('cls_token'),
    'num_registers': lambda weights: (*shape_of(weights, 'reg_token'), 0, 0)[1],
    'use_ape': use_ape,
    'img_size': img_size,
    'use_lpe': has_any(r'.+\.attn\.local\..+'),
    'use_rpb': has_any(r'.+\.relative_position_bias_table'),
    'layer_scale_init_value': lambda weights: 1e-4 if has(weights, r'.+\.gamma_[12]') else None,
    'final_norm': has_any(r'norm\..+'),
}


def read_options(weights: StateDict) -> dict[str, object]:
    """The options of a ViT, read off its weights in our layout."""
    return {name: read(weights) for name, read in OPTIONS.items()}


def nearest_archs(weights: StateDict) -> dict[tuple[type[Backbone], str], float]:
    """The named architectures whose weights are most like these, of equal channels and blocks.

    Returns:
        From class and name to the share of keys that are in both, in the same shape.
    """
    given, shares = shapes_of(weights), {}
    for backbone in (RoPEViT, RoPESwin, RoPENAT):
        for name, arch in backbone.ARCHS.items():
            if has_sizes(arch, weights):
                with torch.device('meta'):
                    model = backbone(arch=name)
                shares[backbone, name] = likeness(given, shapes_of(model.state_dict()))
    return {arch: share for arch, share in shares.items() if share == max(shares.values())}


def shapes_of(weights: StateDict) -> Shapes:
    """Each key with its shape."""
    return {(key, tensor.shape) for key, tensor in weights.items()}


def likeness(a: Shapes, b: Shapes) -> float:
    """Keys of equal shape as a share of all keys."""
    return len(a & b) / len(a | b)


def looks_like(model: Backbone, weights: StateDict) -> str:
    """A line that names the architecture of the weights; '' if none is nearer than the model."""
    own = likeness(shapes_of(weights), shapes_of(model.state_dict()))
    names = [
        f'{backbone.__name__} with arch={name!r}'
        for (backbone, name), share in nearest_archs(weights).items()
        if share > own
    ]
    return f'\n  this looks like {" or ".join(names)}' if names else ''


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
