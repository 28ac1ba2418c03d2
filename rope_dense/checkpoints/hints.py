"""Why a checkpoint does not fit a backbone, and the options of the backbone that would."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from torch import Tensor

from ..backbones import RoPENAT, RoPESwin, RoPEViT
from ..backbones.archs import find_vit_arch
from ..backbones.base import Backbone
from .dinov3 import PERIODS
from .keys import SWIN_BLOCK, SWIN_FREQS, VIT_FREQS, StateDict, by_stage, has
from .timm_vit import is_square
from .vit_settings import PATCHES, ViTSettings, arch_settings, nearest_arch, read_settings

# Pattern of keys, what they are, and the option if only the checkpoint has them or only the model.
PARTS = (
    (r'pos_embed', 'position embedding', 'use_ape=True', 'use_ape=False'),
    (r'cls_token', 'class token', '', 'with_cls_token=False'),
    (r'.+\.gamma_[12]', 'LayerScale', 'layer_scale_init_value=1e-4', 'layer_scale_init_value=None'),
    (r'norm\..+', 'final norm', '', 'final_norm=False'),
    (r'.+\.relative_position_bias.+', 'relative position bias', 'use_rpb=True', 'use_rpb=False'),
    (r'.+\.rel_pos_[hw]', 'relative positions', 'rope=None and use_rel_pos=True', ''),
    (r'.+\.lora\.(down|up)', 'adapters', 'lora=dict(...) as in their training', ''),
    (r'sine_embed\..+', 'global position embedding', "use_ape='sine_conv'", 'use_ape=False'),
    (r'.+\.attn\.local\..+', 'local position embedding', 'use_lpe=True', 'use_lpe=False'),
    (r'patch_embed\.norm\..+', 'norm of the patches', 'patch_norm=True', 'patch_norm=False'),
)
STEM = 'patch_embed.proj.1.weight'  # of NAT and DiNAT
NEEDED = {
    'ViT': "type='RoPEViT'",
    'Swin': "type='RoPESwin', or 'RoPENAT' with arch='nat_s_...'",
    'NAT': "type='RoPENAT' with arch='nat_...' or 'dinat_...'",
}
FREQS = f'{VIT_FREQS}|{SWIN_FREQS}'
ROUNDING = 1e-5  # radians per patch; that of published axial frequencies is 4e-8


@dataclass(frozen=True)
class IncompatibleKeys:
    """The keys that keep a checkpoint from being loaded; true if there are any.

    Attributes:
        missing: in the model only.
        left_over: in the checkpoint only.
        mismatched: in both, but not in the same shape; from the key to both shapes.
        axial: frequencies that are axial, of a model that mixes the axes.
        not_finite: with NaN or an infinite number.
    """

    missing: list[str]
    left_over: list[str]
    mismatched: dict[str, tuple[str, str]]
    axial: list[str] = field(default_factory=list)
    not_finite: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(vars(self).values())

    def __str__(self) -> str:
        mismatched = [
            f'{key} {given} instead of {expected}'
            for key, (given, expected) in self.mismatched.items()
        ]
        groups = {
            'missing': self.missing,
            'left over': self.left_over,
            'of another shape': mismatched,
            'axial, not mixed': self.axial,
            'not finite (NaN or infinite)': self.not_finite,
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


def hints(model: Backbone, weights: StateDict, incompatible: IncompatibleKeys) -> Iterator[str]:
    """Options of the model that would fit the weights (in our layout), one sentence each."""
    if not isinstance(model, (RoPEViT, RoPESwin, RoPENAT)):
        return  # its options are not known here
    expected, kind = model.state_dict(), kind_of(weights)
    if kind != kind_of(expected):
        yield f'the checkpoint is a {kind}: it needs {NEEDED[kind]}'
        return
    settings = read_settings(weights) if isinstance(model, RoPEViT) else None
    if settings and not model.arch.num_prefix_tokens:  # dropped on purpose
        settings = replace(settings, with_cls_token=False, num_registers=0)
    if isinstance(model, (RoPESwin, RoPENAT)):
        yield from stage_hints(model, expected, weights)
    elif settings:
        yield from vit_hints(model, settings)
    if PATCHES in weights and weights[PATCHES].shape[1] != expected[PATCHES].shape[1]:
        yield f'set in_channels={weights[PATCHES].shape[1]}'
    name = settings and advised_arch(model, settings)
    if not name or 'rope' not in model.ARCHS[name]:  # one with a rope decides on all the rest
        yield from part_hints(expected, weights, incompatible)
        yield from frequency_hints(expected, weights, incompatible)


def kind_of(weights: StateDict) -> str:
    """'NAT' for a stem of convolutions, 'Swin' for other stages (NAT-s too), or 'ViT'."""
    if STEM in weights:
        return 'NAT'
    return 'Swin' if is_swin(weights) else 'ViT'


def is_swin(weights: StateDict) -> bool:
    return bool(by_stage(weights, SWIN_BLOCK))


def vit_hints(model: RoPEViT, settings: ViTSettings) -> Iterator[str]:
    """Arguments for what differs from the checkpoint, or another architecture and arguments."""
    base, name = arch_settings(model.arch), advised_arch(model, settings)
    arch = ''
    if name:
        base, arch = arch_settings(find_vit_arch(model.ARCHS, name)), f': set arch={name!r}'
    if name or settings.kind != base.kind:
        yield f'the checkpoint has {settings}{arch}'
    for setting in settings.differences(base):
        if setting in ARGUMENTS:
            yield f'{"with that, " if arch else ""}set {ARGUMENTS[setting](settings)}'
    if not name and model.arch.use_ape == 'tile' and settings.grid_side not in (0, base.grid_side):
        yield (
            f'set img_size={settings.grid_side * settings.patch_size}: a position embedding that '
            "is repeated (use_ape='tile') is never resized"
        )


def advised_arch(model: RoPEViT, settings: ViTSettings) -> str | None:
    """A named architecture for the checkpoint: where the model is of another kind, or where one
    fits in all but biases that may be zero, and the model does not in several settings."""
    base, name = arch_settings(model.arch), nearest_arch(model.ARCHS, settings)
    if name is None or settings.kind != base.kind:
        return name
    other = arch_settings(find_vit_arch(model.ARCHS, name))
    several = len({*settings.differences(base)} - {'grid_side'}) > 1
    fits = not {*settings.differences(other)} - {'grid_side', 'qkv_bias'}
    return name if several and fits else None


ARGUMENTS: dict[str, Callable[[ViTSettings], str]] = {
    'hidden_dims': lambda settings: f'mlp_ratio={settings.hidden_dims / settings.embed_dims}',
    'patch_size': lambda settings: f'patch_size={settings.patch_size}',
    'qkv_bias': lambda settings: f'qkv_bias={settings.qkv_bias!r}',
    'num_registers': lambda settings: f'num_registers={settings.num_registers}',
}


def part_hints(
    expected: StateDict, weights: StateDict, incompatible: IncompatibleKeys
) -> Iterator[str]:
    """Arguments for parts that only the checkpoint has, or only the model."""
    for pattern, what, if_given, if_missing in PARTS:
        given, wanted = has(weights, pattern), has(expected, pattern)
        if given and not wanted and if_given and has(incompatible.left_over, pattern):
            yield f'the checkpoint has {what}: set {if_given}'
        if wanted and not given and if_missing and has(incompatible.missing, pattern):
            yield f'the checkpoint has no {what}: set {if_missing}'
    if has(incompatible.missing, r'norm\d+\..+'):
        stages = sorted({match[1] for key in weights if (match := re.match(r'norm(\d+)\.', key))})
        yield f'the checkpoint has output norms of stages {", ".join(stages)} only: see out_indices'
    if 'pos_embed' in incompatible.mismatched and is_square(weights['pos_embed'].shape[-2] - 1):
        yield 'pos_embed has a place for the class token: the checkpoint is another kind of ViT'


def stage_hints(
    model: RoPESwin | RoPENAT, expected: StateDict, weights: StateDict
) -> Iterator[str]:
    """Sizes of a backbone of several stages."""
    if not {PATCHES, STEM} & weights.keys():
        return
    given = swin_sizes(weights)
    if given != swin_sizes(expected):
        named = [
            f'set arch={name!r}'
            for name, arch in model.ARCHS.items()
            if (arch['embed_dims'], tuple(arch['depths'])) == given
        ]
        depths = ' + '.join(map(str, given[1]))
        advice = f': {" or ".join(named)}' if named else ''
        yield f'the checkpoint has {given[0]} channels and {depths} blocks{advice}'
    patch_sizes = [state[PATCHES].shape[-1] for state in (weights, expected) if PATCHES in state]
    if len({*patch_sizes}) > 1:
        yield f'set patch_size={patch_sizes[0]}'
    ratios = [hidden_ratio(state) for state in (weights, expected)]
    if None not in ratios and ratios[0] != ratios[1]:
        yield f'set mlp_ratio={ratios[0]}{" in arch" if isinstance(model, RoPENAT) else ""}'
    biased = [has(state, r'.+\.qkv\.bias') for state in (weights, expected)]
    if biased[0] != biased[1]:
        yield f'set qkv_bias={biased[0]}'


def swin_sizes(weights: StateDict) -> tuple[int, tuple[int, ...]]:
    """Channels of the first stage, and the number of blocks of each."""
    stages = by_stage(weights, SWIN_BLOCK)
    first = weights[PATCHES if PATCHES in weights else STEM]
    return len(first), tuple(len(blocks) for _, blocks in sorted(stages.items()))


def hidden_ratio(weights: StateDict) -> float | None:
    """Hidden channels over channels of the first MLP."""
    fc1 = [tensor for key, tensor in weights.items() if key.endswith('fc1.weight')]
    return fc1[0].shape[0] / fc1[0].shape[1] if fc1 else None


def same_sizes(expected: StateDict, weights: StateDict) -> bool:
    if is_swin(expected):
        known = {PATCHES, STEM} & weights.keys()
        return bool(known) and swin_sizes(expected) == swin_sizes(weights)
    settings, expected_settings = read_settings(weights), read_settings(expected)
    return settings is not None and settings.kind == expected_settings.kind


def frequency_hints(
    expected: StateDict, weights: StateDict, incompatible: IncompatibleKeys
) -> Iterator[str]:
    if PERIODS in incompatible.left_over:
        periods = weights[PERIODS].float()
        theta = float(periods[-1]) ** (len(periods) / (len(periods) - 1))
        yield (
            f"the checkpoint has the periods of a DINOv3: set arch='dinov3_...' or a rope with "
            f"series='periods' and theta={theta:.3g}"
        )
        return
    key = next((key for key in {**weights, **expected} if re.fullmatch(FREQS, key)), None)
    if key in incompatible.missing:
        theta = 50.0 if by_stage(expected, SWIN_BLOCK) else 100.0
        yield (
            'the checkpoint has no frequencies: '
            f"set rope=dict(type='AxialRoPE', theta={theta}) or rope=None"
        )
    elif key in incompatible.left_over or key in incompatible.axial:
        theta = axial_theta(weights[key])
        kind = 'a mixed' if theta is None else 'an axial'
        rope = "type='MixedRoPE'" if theta is None else f"type='AxialRoPE', theta={theta:.4g}"
        yield f'freqs found, this is {kind} checkpoint: set rope=dict({rope})'
    elif key in incompatible.mismatched and same_sizes(expected, weights):
        yield (
            f'frequencies are {incompatible.mismatched[key][0]}, [2, heads, pairs]: mixed ones '
            'have pairs for half the channels of a head, learned axial ones for a quarter'
        )


def axial_theta(freqs: Tensor) -> float | None:
    """The theta of axial frequencies [2, h, P]; None if they mix the axes."""
    if freqs.ndim != 3 or len(freqs) != 2 or freqs.shape[-1] < 4:
        return None
    (x, y), pairs = freqs.float(), freqs.shape[-1]
    if max(x[..., pairs // 2 :].abs().max(), y[..., : pairs // 2].abs().max()) > ROUNDING:
        return None
    return float(x[0, 1]) ** (-pairs / 2)
