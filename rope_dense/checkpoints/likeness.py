"""Named architectures that weights look like."""

from collections import defaultdict

import torch

from ..backbones import RoPENAT, RoPESwin, RoPEViT
from ..backbones.base import Backbone
from .keys import SWIN_BLOCK, VIT_BLOCK, StateDict, has_key, matches, name_pattern

PATCHES = 'patch_embed.proj.weight'
STEM = 'patch_embed.proj.1.weight'  # of NAT and DiNAT

Shapes = set[tuple[str, torch.Size]]


def sizes_of(weights: StateDict) -> tuple[int | None, int | tuple[int, ...]]:
    """Channels of the first stage, and the number of blocks, or of blocks of each stage."""
    stages = defaultdict(set)
    for key in weights:
        if match := name_pattern(SWIN_BLOCK).fullmatch(key):
            stages[match[1]].add(match[2])
    blocks = sum(matches(key, VIT_BLOCK) for key in weights)
    patches = weights.get(PATCHES, weights.get(STEM))
    channels = None if patches is None else next(iter(patches.shape), None)
    depths = tuple(len(stages[stage]) for stage in sorted(stages, key=int))
    return channels, depths or blocks


def has_sizes(arch: dict, weights: StateDict) -> bool:
    """True if weights in our layout have the channels and blocks of an architecture."""
    blocks = arch['depth'] if 'depth' in arch else tuple(arch['depths'])
    return (arch['embed_dims'], blocks) == sizes_of(weights)


def mlp_kind(weights: StateDict) -> str:
    """As ``ViTArch.mlp``."""
    if not has_key(weights, '*.mlp.fc1_g.weight'):
        return 'gelu'
    return 'swiglu_norm' if has_key(weights, '*.mlp.norm.weight') else 'swiglu'


def nearest_archs(weights: StateDict) -> dict[tuple[type[Backbone], str], float]:
    """The architectures of equal channels and blocks, with the share of keys and shapes in both."""
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


def likeness_text(model: Backbone, weights: StateDict) -> str:
    """A line that names the architecture of the weights; '' if none is nearer than the model."""
    own = likeness(shapes_of(weights), shapes_of(model.state_dict()))
    names = [
        f'{backbone.__name__} with arch={name!r}'
        for (backbone, name), share in nearest_archs(weights).items()
        if share > own
    ]
    return f'\n  this looks like {" or ".join(names)}' if names else ''
