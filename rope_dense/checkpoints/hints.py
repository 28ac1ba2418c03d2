"""Advice on weights that do not fit: the nearest named architecture, the options that differ."""

from __future__ import annotations

import inspect

from ..backbones.base import Backbone
from ..rope import AxialRoPE
from .architectures import (
    OPTIONS,
    STEM,
    differing,
    learned_rope,
    nearest_archs,
    read_options,
    shapes_of,
)
from .incompatible import IncompatibleKeys
from .keys import SWIN_BLOCK, SWIN_FREQS, VIT_FREQS, StateDict, has
from .publishers.dinov3 import PERIODS

FREQS = f'{VIT_FREQS}|{SWIN_FREQS}'
NEEDED = {
    'ViT': "type='RoPEViT'",
    'Swin': "type='RoPESwin', or 'RoPENAT' with arch='nat_s_...'",
    'NAT': "type='RoPENAT' with arch='nat_...' or 'dinat_...'",
}


def advice(model: Backbone, weights: StateDict, incompatible: IncompatibleKeys) -> str:
    """Lines on the architecture of the weights (in our layout), for an error message.

    The nearest named architecture, if it differs less than the model, and a table of the options
    that differ and concern keys of ``incompatible``; '' for a backbone without architectures.
    """
    if not model.ARCHS:
        return ''
    expected = shapes_of(model)
    if (family := family_of(weights)) != family_of(expected):
        return f'\n  the checkpoint is a {family}: it needs {NEEDED[family]}'
    options, own = read_options(weights), read_options(expected)
    keys = incompatible.all_keys()
    concerned = [name for name, (pattern, _) in OPTIONS.items() if has(keys, pattern)]
    rows = {name: (options[name], own[name]) for name in differing(options, own, concerned)}
    if None in rows.get('img_size', ()):  # only one of them has positions, which use_ape says
        del rows['img_size']
    lines = []
    nearest = nearest_archs(type(model), options, concerned)
    if nearest:
        left = differing(next(iter(nearest.values())), options, concerned)
        if {'embed_dims', 'depth'} & rows.keys() or len(left) < len(rows):
            names = ' or '.join(f'arch={name!r}' for name in nearest)
            lines.append(', '.join([names, *(f'{name}={options[name]!r}' for name in left)]))
    table = [('option', 'checkpoint', 'model')]
    arguments = inspect.signature(type(model)).parameters
    for name, (given, wanted) in rows.items():
        label = name if name in arguments else f'{name} (of arch)'
        table.append((label, repr(given), repr(wanted)))
    misfits_rope = has(keys, FREQS) or PERIODS in keys
    if misfits_rope and not {'embed_dims', 'depth'} & rows.keys():
        table.append(('rope', rope_of(weights), rope_of_model(model)))
    text = ''.join(f'\n  nearest: {line}' for line in lines)
    if len(table) == 1:
        return text
    widths = [max(len(row[column]) for row in table) for column in (0, 1)]
    return text + ''.join(f'\n  {a:{widths[0]}}  {b:{widths[1]}}  {c}' for a, b, c in table)


def family_of(weights: StateDict) -> str:
    """'NAT' for a stem of convolutions, 'Swin' for other stages (NAT-s too), or 'ViT'."""
    if STEM in weights:
        return 'NAT'
    return 'Swin' if has(weights, SWIN_BLOCK) else 'ViT'


def rope_of_model(model: Backbone) -> str:
    """The embedding of the first block, as in a config."""
    rope = model.ordered_blocks[0].attn.rope
    if rope is None:
        return 'None'
    learned = ', learned=True' if isinstance(rope, AxialRoPE) and rope.learned else ''
    return f"type='{type(rope).__name__}'{learned}"


def rope_of(weights: StateDict) -> str:
    """The embedding that has these frequencies, as in a config."""
    if PERIODS in weights:
        periods = weights[PERIODS].float().flatten()
        theta = float(periods[-1]) ** (len(periods) / max(len(periods) - 1, 1))
        return f"type='AxialRoPE', series='periods', theta={theta:.3g}, as in dinov3_*"
    rope = learned_rope(weights)
    if rope is None:
        theta = 50.0 if family_of(weights) == 'Swin' else 100.0
        return f"no frequencies: None, or type='AxialRoPE', theta={theta}"
    return ', '.join(f'{name}={value!r}' for name, value in rope.items())
