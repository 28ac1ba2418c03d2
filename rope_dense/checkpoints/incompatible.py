"""The weights of a checkpoint that do not fit a model, and architectures that they look like."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..backbones import RoPENAT, RoPESwin, RoPEViT
from ..backbones.base import Backbone
from .errors import keys_text, short_key
from .keys import (
    SWIN_BLOCK,
    VIT_BLOCK,
    StateDict,
    has_key,
    matching_keys,
    name_pattern,
)


@dataclass(frozen=True)
class IncompatibleKeys:
    """The keys that do not fit; true if there are any.

    Attributes:
        missing: in the model only.
        left_over: in the checkpoint only.
        mismatched: in both, but of another shape, or integers in place of real numbers; from the
            key to both shapes.
        without_values: on the meta device, of a model that is not.
        not_finite: with NaN or an infinite number.
        axial: frequencies that are axial, of a model that mixes the axes.
    """

    missing: list[str]
    left_over: list[str]
    mismatched: dict[str, tuple[str, str]]
    without_values: list[str]
    not_finite: list[str]
    axial: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(vars(self).values())

    def only_mismatched(self, keys: Collection[str]) -> bool:
        """True if these keys, at least one, have another shape and everything else fits."""
        problems = {name for name, found in vars(self).items() if found}
        return problems == {'mismatched'} and self.mismatched.keys() == set(keys)

    def __str__(self) -> str:
        mismatched = [
            f'{short_key(key)} {given} instead of {expected}'
            for key, (given, expected) in self.mismatched.items()
        ]
        groups = {
            'missing': self.missing,
            'left over': self.left_over,
            'of another shape': mismatched,
            'axial, not mixed': self.axial,
            'without values (on the meta device)': self.without_values,
            'not finite (NaN or infinite)': self.not_finite,
        }
        return '\n'.join(
            f'  {name}: {keys_text(keys)}' for name, keys in groups.items() if keys
        )


def compare_weights(expected: StateDict, weights: StateDict) -> IncompatibleKeys:
    """Compare weights with the ``expected`` ones of a model.

    Values are read, one tensor at a time, only if keys and shapes fit, and not for a model on the
    meta device.
    """
    missing = [key for key in expected if key not in weights]
    left_over = [key for key in weights if key not in expected]
    found = IncompatibleKeys(missing, left_over, {}, [], [])
    both = [key for key in expected if key in weights]
    for key in both:
        given, own = weights[key], expected[key]
        is_same_kind = given.is_floating_point() == own.is_floating_point()
        if given.shape != own.shape or not is_same_kind:
            found.mismatched[key] = shape_and_type(given), shape_and_type(own)
    if found:
        return found
    for key in both:
        if expected[key].is_meta:
            continue
        if weights[key].is_meta:
            found.without_values.append(key)
        elif not weights[key].isfinite().all():
            found.not_finite.append(key)
    return found


def shape_and_type(tensor: Tensor) -> str:
    """Shape of a tensor, and its type unless that is a floating-point one."""
    kind = '' if tensor.is_floating_point() else f' {tensor.dtype}'
    return f'{list(tensor.shape)}{kind}'


PATCHES = 'patch_embed.proj.weight'
STEM = 'patch_embed.proj.1.weight'  # of NAT and DiNAT


def sizes_of(weights: StateDict) -> tuple[int | None, int | tuple[int, ...]]:
    """Channels of the first stage, and the number of blocks, or of blocks of each stage."""
    stages = defaultdict(set)
    for key in weights:
        match = name_pattern(SWIN_BLOCK).fullmatch(key)
        if match:
            stages[match[1]].add(match[2])
    blocks = len(matching_keys(weights, VIT_BLOCK))
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
    shares = {}
    for backbone in (RoPEViT, RoPESwin, RoPENAT):
        for name, arch in backbone.ARCHS.items():
            if has_sizes(arch, weights):
                with torch.device('meta'):
                    model = backbone(arch=name)
                shares[backbone, name] = likeness(weights, model)
    best = max(shares.values(), default=0)
    return {arch: share for arch, share in shares.items() if share == best}


def shapes(weights: StateDict) -> dict[str, torch.Size]:
    """The shape of each weight."""
    return {key: tensor.shape for key, tensor in weights.items()}


def likeness(weights: StateDict, model: Backbone) -> float:
    """Keys of equal shape in weights and a model as a share of all keys."""
    given = shapes(weights).items()
    own = shapes(model.state_dict()).items()
    return len(given & own) / len(given | own)


def likeness_text(model: Backbone, weights: StateDict) -> str:
    """A line that names the architecture of the weights; '' if none is nearer than the model."""
    own = likeness(weights, model)
    names = [
        f'{backbone.__name__} with arch={name!r}'
        for (backbone, name), share in nearest_archs(weights).items()
        if share > own
    ]
    return f'\n  this looks like {" or ".join(names)}' if names else ''
