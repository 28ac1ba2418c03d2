"""The options of a backbone that would make a checkpoint fit."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from torch import Tensor

from ..backbones.archs import ViTArch, find_arch
from ..backbones.base import Backbone
from .incompatible import IncompatibleKeys
from .keys import SWIN_BLOCK, SWIN_FREQS, VIT_FREQS, StateDict, by_stage, has, is_square
from .layouts.dinov3 import PERIODS
from .vit_settings import (
    PATCHES,
    Settings,
    arch_settings,
    differences,
    kind_of,
    nearest_arch,
    read_settings,
)

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
# Options of RoPEViT that ``read_settings`` reads; an arch of another name has the rest.
VIT_OPTIONS = ('mlp_ratio', 'patch_size', 'qkv_bias', 'num_registers')
STEM = 'patch_embed.proj.1.weight'  # of NAT and DiNAT
NEEDED = {
    'ViT': "type='RoPEViT'",
    'Swin': "type='RoPESwin', or 'RoPENAT' with arch='nat_s_...'",
    'NAT': "type='RoPENAT' with arch='nat_...' or 'dinat_...'",
}
ROUNDING = 1e-5  # radians per patch; that of published axial frequencies is 4e-8


def hints(model: Backbone, weights: StateDict, incompatible: IncompatibleKeys) -> Iterator[str]:
    """Options of the model that would fit the weights (in our layout), one sentence each."""
    if not model.ARCHS:
        return  # its options are not known here
    expected, family = model.state_dict(), family_of(weights)
    if family != family_of(expected):
        yield f'the checkpoint is a {family}: it needs {NEEDED[family]}'
        return
    name = None
    if not model.is_isotropic:
        yield from stage_hints(model, expected, weights)
    elif settings := read_settings(weights):
        if not model.num_prefix_tokens:  # dropped on purpose
            settings.update(with_cls_token=False, num_registers=0)
        name = advised_arch(model, settings)
        yield from vit_hints(model, settings, name)
    if PATCHES in weights and weights[PATCHES].shape[1] != expected[PATCHES].shape[1]:
        yield f'set in_channels={weights[PATCHES].shape[1]}'
    if not name or 'rope' not in model.ARCHS[name]:  # one with a rope decides on all the rest
        yield from part_hints(expected, weights, incompatible)
        yield from frequency_hints(expected, weights, incompatible)


def family_of(weights: StateDict) -> str:
    """'NAT' for a stem of convolutions, 'Swin' for other stages (NAT-s too), or 'ViT'."""
    if STEM in weights:
        return 'NAT'
    return 'Swin' if is_swin(weights) else 'ViT'


def is_swin(weights: StateDict) -> bool:
    return bool(by_stage(weights, SWIN_BLOCK))


def advised_arch(model: Backbone, settings: Settings) -> str | None:
    """A named architecture for the checkpoint: where the model is of another kind, or where one
    fits in all but biases that may be zero, and the model does not in several settings."""
    base, name = arch_settings(model.arch), nearest_arch(model.ARCHS, settings)
    if name is None or kind_of(settings) != kind_of(base):
        return name
    other = arch_settings(find_arch(ViTArch, model.ARCHS, name))
    several = len({*differences(settings, base)} - {'grid_side'}) > 1
    fits = not {*differences(settings, other)} - {'grid_side', 'qkv_bias'}
    return name if several and fits else None


def vit_hints(model: Backbone, settings: Settings, name: str | None) -> Iterator[str]:
    """Arguments for what differs from the checkpoint, or the architecture ``name`` and arguments
    for what differs from that."""
    base = arch_settings(find_arch(ViTArch, model.ARCHS, name) if name else model.arch)
    if name or kind_of(settings) != kind_of(base):
        yield f'the checkpoint has {described(settings)}' + (f': set arch={name!r}' if name else '')
    differing = differences(settings, base)
    for option in VIT_OPTIONS:
        if option in differing:
            yield f'{"with that, " if name else ""}set {option}={settings[option]!r}'
    img_size = settings['grid_side'] * settings['patch_size']
    if not name and model.arch.use_ape == 'tile' and img_size and 'grid_side' in differing:
        yield (
            f'set img_size={img_size}: a position embedding that is repeated '
            "(use_ape='tile') is never resized"
        )


def described(settings: Settings) -> str:
    words = [f'{settings["embed_dims"]} channels and {settings["depth"]} blocks']
    words += [f'mlp={settings["mlp"]!r}'] if settings['mlp'] != 'gelu' else []
    words += [f'{settings["num_registers"]} registers'] if settings['num_registers'] else []
    return ', '.join(words + [name for name in ('pre_norm', 'attn_norm') if settings[name]])


def stage_hints(model: Backbone, expected: StateDict, weights: StateDict) -> Iterator[str]:
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
    arguments = inspect.signature(type(model)).parameters
    own = stage_settings(expected)
    for option, value in stage_settings(weights).items():
        if value is not None and own[option] not in (None, value):
            yield f'set {option}={value}{"" if option in arguments else " in arch"}'


def swin_sizes(weights: StateDict) -> tuple[int, tuple[int, ...]]:
    """Channels of the first stage, and the number of blocks of each."""
    stages = by_stage(weights, SWIN_BLOCK)
    first = weights[PATCHES if PATCHES in weights else STEM]
    return len(first), tuple(len(blocks) for _, blocks in sorted(stages.items()))


def stage_settings(weights: StateDict) -> dict[str, object]:
    """Options of a backbone of several stages; None where the weights do not tell."""
    first = next((x for key, x in weights.items() if key.endswith('fc1.weight')), None)
    return dict(
        patch_size=weights[PATCHES].shape[-1] if PATCHES in weights else None,
        mlp_ratio=None if first is None else first.shape[0] / first.shape[1],
        qkv_bias=has(weights, r'.+\.qkv\.bias'),
    )


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
    freqs = f'{VIT_FREQS}|{SWIN_FREQS}'
    key = next((key for key in {**weights, **expected} if re.fullmatch(freqs, key)), None)
    if key in incompatible.missing:
        theta = 50.0 if is_swin(expected) else 100.0
        yield (
            'the checkpoint has no frequencies: '
            f"set rope=dict(type='AxialRoPE', theta={theta}) or rope=None"
        )
    elif key in incompatible.left_over or key in incompatible.axial:
        theta = axial_theta(weights[key])
        what = 'a mixed' if theta is None else 'an axial'
        rope = "type='MixedRoPE'" if theta is None else f"type='AxialRoPE', theta={theta:.4g}"
        yield f'freqs found, this is {what} checkpoint: set rope=dict({rope})'
    elif key in incompatible.mismatched and not has(incompatible.mismatched, r'.+\.qkv\.weight'):
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
