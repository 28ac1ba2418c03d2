"""Why a checkpoint does not fit a backbone, and the options of the backbone that would."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from torch import Tensor, nn

from ..backbones.archs import find_vit_arch
from .dinov3 import PERIODS
from .keys import SWIN_BLOCK, StateDict, by_stage, has
from .timm_vit import is_square
from .traits import PATCHES, Traits, arch_traits, nearest_arch, read_traits

# Pattern of keys, what they are, and the option if only the checkpoint has them or only the model.
PARTS = (
    (r'pos_embed', 'position embedding', 'use_ape=True', 'use_ape=False'),
    (r'cls_token', 'class token', '', 'with_cls_token=False'),
    (r'.+\.gamma_[12]', 'LayerScale', 'layer_scale_init_value=1e-4', 'layer_scale_init_value=None'),
    (r'norm\..+', 'final norm', '', 'final_norm=False'),
    (r'.+\.relative_position_bias.+', 'relative position bias', 'use_rpb=True', 'use_rpb=False'),
    (r'.+\.rel_pos_[hw]', 'relative positions', 'rope=None and use_rel_pos=True', ''),
    (r'patch_embed\.norm\..+', 'norm of the patches', 'patch_norm=True', 'patch_norm=False'),
)
FREQS = r'(layers\.\d+\.)?rope\.freqs'
ROUNDING = 1e-5  # radians per patch; that of published axial frequencies is 4e-8


@dataclass(frozen=True)
class Misfit:
    """The keys that keep a checkpoint from being loaded; true if there are any.

    Attributes:
        missing: in the model only.
        left_over: in the checkpoint only.
        unlike: in both, but not in the same shape; from the key to both shapes.
        axial: frequencies that are axial, of a model that mixes the axes.
    """

    missing: list[str]
    left_over: list[str]
    unlike: dict[str, tuple[str, str]]
    axial: list[str]

    def __bool__(self) -> bool:
        return bool(self.missing or self.left_over or self.unlike or self.axial)

    def __str__(self) -> str:
        unlike = [f'{key} {given} instead of {own}' for key, (given, own) in self.unlike.items()]
        groups = {
            'missing': self.missing,
            'left over': self.left_over,
            'of another shape': unlike,
            'axial, not mixed': self.axial,
        }
        return '\n'.join(f'  {name}: {listed(keys)}' for name, keys in groups.items() if keys)


def listed(keys: Iterable[str]) -> str:
    """All keys, those that differ in numbers between dots together."""
    groups = defaultdict(list)
    for key in keys:
        groups[re.sub(r'(?<=\.)\d+(?=\.)', '*', key)].append(key)
    return ', '.join(
        members[0] if len(members) == 1 else f'{group} ({len(members)} times)'
        for group, members in groups.items()
    )


def hints(model: nn.Module, weights: StateDict, misfit: Misfit) -> Iterator[str]:
    """Options of the model that would fit the weights (in our layout), one sentence each."""
    own = model.state_dict()
    if is_swin(weights) != is_swin(own):
        kind = 'Swin' if is_swin(weights) else 'ViT'
        yield f'the checkpoint is a {kind}: it needs type={"RoPE" + kind!r}'
        return
    traits = None if is_swin(own) else read_traits(weights)
    if traits and not model.arch.num_prefix_tokens:  # dropped on purpose
        traits = replace(traits, with_cls_token=False, num_registers=0)
    if is_swin(own):
        yield from swin_size_hints(model, own, weights)
    elif traits:
        yield from vit_hints(model, traits)
    if PATCHES in weights and weights[PATCHES].shape[1] != own[PATCHES].shape[1]:
        yield f'set in_channels={weights[PATCHES].shape[1]}'
    name = traits and advised_arch(model, traits)
    if not name or 'rope' not in model.ARCHS[name]:  # one with a rope decides on all the rest
        yield from part_hints(own, weights, misfit)
        yield from frequency_hints(own, weights, misfit)


def is_swin(weights: StateDict) -> bool:
    return bool(by_stage(weights, SWIN_BLOCK))


def vit_hints(model: nn.Module, traits: Traits) -> Iterator[str]:
    """Arguments for what differs from the checkpoint, or another architecture and arguments."""
    base, name = arch_traits(model.arch), advised_arch(model, traits)
    arch = ''
    if name:
        base, arch = arch_traits(find_vit_arch(model.ARCHS, name)), f': set arch={name!r}'
    if name or traits.kind != base.kind:
        yield f'the checkpoint has {traits}{arch}'
    for trait in traits.unlike(base):
        if trait in ARGUMENTS:
            yield f'{"with that, " if arch else ""}set {ARGUMENTS[trait](traits)}'


def advised_arch(model: nn.Module, traits: Traits) -> str | None:
    """A named architecture for the checkpoint: where the model is of another kind, or where one
    fits in all and the model does not in several traits."""
    own, name = arch_traits(model.arch), nearest_arch(model.ARCHS, traits)
    if name is None or traits.kind != own.kind:
        return name
    other = arch_traits(find_vit_arch(model.ARCHS, name))
    several = len({*traits.unlike(own)} - {'grid_side'}) > 1
    return name if several and not {*traits.unlike(other)} - {'grid_side'} else None


ARGUMENTS: dict[str, Callable[[Traits], str]] = {
    'hidden_dims': lambda traits: f'mlp_ratio={traits.hidden_dims / traits.embed_dims}',
    'patch_size': lambda traits: f'patch_size={traits.patch_size}',
    'qkv_bias': lambda traits: f'qkv_bias={traits.qkv_bias!r}',
    'num_registers': lambda traits: f'num_registers={traits.num_registers}',
}


def part_hints(own: StateDict, weights: StateDict, misfit: Misfit) -> Iterator[str]:
    """Arguments for parts that only the checkpoint has, or only the model."""
    for pattern, what, if_given, if_missing in PARTS:
        given, wanted = has(weights, pattern), has(own, pattern)
        if given and not wanted and if_given and has(misfit.left_over, pattern):
            yield f'the checkpoint has {what}: set {if_given}'
        if wanted and not given and if_missing and has(misfit.missing, pattern):
            yield f'the checkpoint has no {what}: set {if_missing}'
    if has(misfit.missing, r'norm\d+\..+'):
        stages = sorted({match[1] for key in weights if (match := re.match(r'norm(\d+)\.', key))})
        yield f'the checkpoint has output norms of stages {", ".join(stages)} only: see out_indices'
    if 'pos_embed' in misfit.unlike and is_square(weights['pos_embed'].shape[-2] - 1):
        yield 'pos_embed has a place for the class token: the checkpoint is another kind of ViT'


def swin_size_hints(model: nn.Module, own: StateDict, weights: StateDict) -> Iterator[str]:
    if PATCHES not in weights:
        return
    given = swin_sizes(weights)
    if given != swin_sizes(own):
        named = [
            f': set arch={name!r}'
            for name, arch in model.ARCHS.items()
            if (arch['embed_dims'], tuple(arch['depths'])) == given
        ]
        depths = ' + '.join(map(str, given[1]))
        yield f'the checkpoint has {given[0]} channels and {depths} blocks{"".join(named)}'
    patch_sizes = [state[PATCHES].shape[-1] for state in (weights, own)]
    if patch_sizes[0] != patch_sizes[1]:
        yield f'set patch_size={patch_sizes[0]}'
    ratios = [hidden_ratio(state) for state in (weights, own)]
    if None not in ratios and ratios[0] != ratios[1]:
        yield f'set mlp_ratio={ratios[0]}'
    biased = [has(state, r'.+\.qkv\.bias') for state in (weights, own)]
    if biased[0] != biased[1]:
        yield f'set qkv_bias={biased[0]}'


def swin_sizes(weights: StateDict) -> tuple[int, tuple[int, ...]]:
    """Channels of the first stage, and the number of blocks of each."""
    stages = by_stage(weights, SWIN_BLOCK)
    return len(weights[PATCHES]), tuple(len(blocks) for _, blocks in sorted(stages.items()))


def hidden_ratio(weights: StateDict) -> float | None:
    """Hidden channels over channels of the first MLP."""
    fc1 = [tensor for key, tensor in weights.items() if key.endswith('fc1.weight')]
    return fc1[0].shape[0] / fc1[0].shape[1] if fc1 else None


def same_sizes(own: StateDict, weights: StateDict) -> bool:
    if is_swin(own):
        return PATCHES in weights and swin_sizes(own) == swin_sizes(weights)
    traits, own_traits = read_traits(weights), read_traits(own)
    return traits is not None and traits.kind == own_traits.kind


def frequency_hints(own: StateDict, weights: StateDict, misfit: Misfit) -> Iterator[str]:
    if PERIODS in misfit.left_over:
        periods = weights[PERIODS].float()
        theta = float(periods[-1]) ** (len(periods) / (len(periods) - 1))
        yield (
            f"the checkpoint has the periods of a DINOv3: set arch='dinov3_...' or a rope with "
            f"series='periods' and theta={theta:.3g}"
        )
        return
    key = next((key for key in {**weights, **own} if re.fullmatch(FREQS, key)), None)
    if key in misfit.missing:
        theta = 50.0 if by_stage(own, SWIN_BLOCK) else 100.0
        yield (
            'the checkpoint has no frequencies: '
            f"set rope=dict(type='AxialRoPE', theta={theta}) or rope=None"
        )
    elif key in misfit.left_over or key in misfit.axial:
        theta = axial_theta(weights[key])
        kind = 'a mixed' if theta is None else 'an axial'
        rope = "type='MixedRoPE'" if theta is None else f"type='AxialRoPE', theta={theta:.4g}"
        yield f'freqs found, this is {kind} checkpoint: set rope=dict({rope})'
    elif key in misfit.unlike and same_sizes(own, weights):
        yield (
            f'frequencies are {misfit.unlike[key][0]}, [2, blocks, heads, pairs]: mixed ones have '
            'pairs for half the channels of a head, learned axial ones for a quarter'
        )


def axial_theta(freqs: Tensor) -> float | None:
    """The theta of axial frequencies [2, L, h, P]; None if they mix the axes."""
    if freqs.ndim != 4 or len(freqs) != 2 or freqs.shape[-1] < 4:
        return None
    (x, y), pairs = freqs.float(), freqs.shape[-1]
    if max(x[..., pairs // 2 :].abs().max(), y[..., : pairs // 2].abs().max()) > ROUNDING:
        return None
    return float(x[0, 0, 1]) ** (-pairs / 2)
