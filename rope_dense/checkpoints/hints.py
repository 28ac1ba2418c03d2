"""Why a checkpoint does not fit a backbone, and the options of the backbone that would."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from .layouts import SWIN_BLOCK, VIT_BLOCK, StateDict, by_stage

# Pattern of keys, what they are, and the option if only the checkpoint has them or only the model.
PARTS = (
    (r'pos_embed', 'position embedding', 'use_ape=True', 'use_ape=False'),
    (r'cls_token', 'class token', '', 'with_cls_token=False'),
    (r'.+\.gamma_[12]', 'LayerScale', 'layer_scale_init_value=1e-4', 'layer_scale_init_value=None'),
    (r'norm\..+', 'final norm', '', 'final_norm=False'),
    (r'.+\.relative_position_bias.+', 'relative position bias', 'use_rpb=True', 'use_rpb=False'),
    (r'.+\.rel_pos_[hw]', 'relative positions', 'rope=None and use_rel_pos=True', ''),
    (r'.+\.qkv\.bias', 'bias of qkv', 'qkv_bias=True', 'qkv_bias=False'),
    (r'patch_embed\.norm\..+', 'norm of the patches', 'patch_norm=True', 'patch_norm=False'),
)
FREQS = r'(layers\.\d+\.)?rope\.freqs'
PATCHES = 'patch_embed.proj.weight'
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
    if bool(by_stage(weights, SWIN_BLOCK)) != bool(by_stage(own, SWIN_BLOCK)):
        kind = 'Swin' if by_stage(weights, SWIN_BLOCK) else 'ViT'
        yield f'the checkpoint is a {kind}: it needs type={"RoPE" + kind!r}'
        return
    if PATCHES in weights and weights[PATCHES].ndim == 4:
        yield from size_hints(model, own, weights)
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
    yield from frequency_hints(own, weights, misfit)


def is_square(number: int) -> bool:
    return math.isqrt(number) ** 2 == number


def has(keys: Iterable[str], pattern: str) -> bool:
    return any(re.fullmatch(pattern, key) for key in keys)


def size_hints(model: nn.Module, own: StateDict, weights: StateDict) -> Iterator[str]:
    given = sizes(weights)
    if given != sizes(own):
        named = [
            f': set arch={name!r}'
            for name, arch in model.ARCHS.items()
            if (arch['embed_dims'], tuple(arch.get('depths') or [arch['depth']])) == given
        ]
        depths = ' + '.join(map(str, given[1]))
        yield f'the checkpoint has {given[0]} channels and {depths} blocks{"".join(named)}'
    patches, own_patches = weights[PATCHES].shape, own[PATCHES].shape
    for dim, option in ((1, 'in_channels'), (-1, 'patch_size')):
        if patches[dim] != own_patches[dim]:
            yield f'set {option}={patches[dim]}'
    ratios = [hidden_ratio(state) for state in (weights, own)]
    if None not in ratios and ratios[0] != ratios[1]:
        yield f'set mlp_ratio={ratios[0]}'


def sizes(weights: StateDict) -> tuple[int, tuple[int, ...]]:
    """Channels of the first stage, and the number of blocks of each (of a ViT: one stage)."""
    stages = by_stage(weights, SWIN_BLOCK)
    depths = [len(blocks) for _, blocks in sorted(stages.items())]
    vit_depth = sum(bool(re.fullmatch(VIT_BLOCK, key)) for key in weights)
    return len(weights[PATCHES]), tuple(depths or [vit_depth])


def hidden_ratio(weights: StateDict) -> float | None:
    """Hidden channels over channels of the first MLP."""
    fc1 = [tensor for key, tensor in weights.items() if key.endswith('fc1.weight')]
    return fc1[0].shape[0] / fc1[0].shape[1] if fc1 else None


def frequency_hints(own: StateDict, weights: StateDict, misfit: Misfit) -> Iterator[str]:
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
    elif key in misfit.unlike and PATCHES in weights and sizes(own) == sizes(weights):
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
