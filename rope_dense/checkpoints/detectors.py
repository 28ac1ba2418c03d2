"""Published checkpoints of whole detectors: DEIMv2, ECDet and ECSeg, to our keys and back.

Checked with the state dicts of transformers' model and of EdgeCrafter's source, and their outputs,
in tests/checkpoints/test_deim_checkpoints.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .errors import CheckpointError, listed
from .keys import KeyTable, StateDict, find_row, has, renamed
from .publishers import find_layout
from .publishers.deim import (
    COMPUTED,
    DEIMV2,
    EDGECRAFTER,
    TRANSFORMERS,
    TRANSFORMERS_COMPUTED,
    Rows,
    key_table,
)
from .publishers.dinov3 import PERIODS

BACKBONE = 'backbone.'
SETTINGS = {'up': 0.5, 'reg_scale': 4.0}  # of the decoder; arguments of ours


@dataclass(frozen=True)
class DetectorLayout:
    """The names of the weights of a published detector.

    Attributes:
        name: for messages.
        signs: patterns; a state dict has this layout if each matches one of its keys.
        rows: both names of all but the backbone.
        computed: patterns of what is dropped.
        backbones: what the names of the backbone may begin with; the longest that fits counts.
    """

    name: str
    signs: tuple[str, ...]
    rows: Rows
    computed: KeyTable
    backbones: tuple[str, ...]

    def fits(self, weights: Mapping[str, Any]) -> bool:
        """Return True for a state dict of this layout."""
        return all(has(weights, sign) for sign in self.signs)

    def to_ours(self, weights: StateDict, name: str) -> StateDict:
        """Weights of a detector under our names.

        Raises:
            CheckpointError: a key that no row names, or settings that are not those published.
        """
        prefix = next(p for p in self.backbones if any(key.startswith(p) for key in weights))
        backbone = {
            key.removeprefix(prefix): x for key, x in weights.items() if key.startswith(prefix)
        }
        others = {key: x for key, x in weights.items() if not key.startswith(prefix)}
        table = {**self.computed, **key_table(self.rows)}
        if unknown := [key for key in others if not find_row(key, table)[0]]:
            raise CheckpointError(f'{name} ({self.name}): keys not known: {listed(unknown)}')
        check_settings(others, name)
        ours = {f'{BACKBONE}{key}': x for key, x in backbone_to_ours(backbone, name).items()}
        return {**ours, **renamed(others, table)}


LAYOUTS = {
    'transformers': DetectorLayout(
        "transformers' DEIMv2",
        (r'model\.enc_score_head\.weight', r'model\.conv_encoder\.fusion_proj\..+'),
        TRANSFORMERS,
        TRANSFORMERS_COMPUTED,
        ('model.conv_encoder.backbone.',),
    ),
    'deimv2': DetectorLayout(
        'DEIMv2',
        (r'decoder\.dec_score_head\..+', r'backbone\.dinov3\..+'),
        DEIMV2,
        COMPUTED,
        ('backbone.dinov3._model.', 'backbone.dinov3.'),
    ),
    'edgecrafter': DetectorLayout(
        'EdgeCrafter',
        (r'decoder\.dec_score_head\..+', r'backbone\.backbone\..+'),
        EDGECRAFTER,
        COMPUTED,
        ('backbone.backbone.',),
    ),
}


def published_detector(contents: dict) -> tuple[DetectorLayout, StateDict] | None:
    """The layout and weights of a published detector in a file; None for another file.

    Of a training with an averaged model its weights are taken.
    """
    average = contents.get('ema')
    candidates = [average.get('module') if isinstance(average, dict) else None]
    candidates += [contents.get('model'), contents.get('state_dict'), contents]
    for state in candidates:
        if isinstance(state, dict):
            weights = {key: x for key, x in state.items() if isinstance(x, Tensor)}
            for layout in LAYOUTS.values():
                if layout.fits(weights):
                    return layout, weights
    return None


def convert_detector(contents: dict, name: str) -> dict:
    """A file of a published detector as mmengine has it, ``state_dict``; others as they are.

    Raises:
        CheckpointError: see ``DetectorLayout.to_ours``.
    """
    found = published_detector(contents)
    if found is None:
        return contents
    layout, weights = found
    return dict(state_dict=layout.to_ours(weights, name))


def backbone_to_ours(weights: StateDict, name: str) -> StateDict:
    """The weights of a ViT as the architecture of its detector needs them.

    ``find_layout`` names them. What changes nothing is dropped: periods, which the model computes,
    biases of 0 of the keys, and, for DEIMv2's small ViTs in transformers, a LayerScale of 1, no
    registers and a norm that is not used.
    """
    ours = find_layout(weights, name).to_ours(weights)
    ours.pop(PERIODS, None)
    registers = ours.get('reg_token')
    small = registers is not None and not registers.numel()
    if small:
        drop(ours, r'reg_token|norm\.(weight|bias)')
        drop_equal(ours, r'blocks\.\d+\.gamma_[12]', 1)
    for key in [key for key in ours if key.endswith('.qkv.q_bias')]:
        block = key.removesuffix('q_bias')
        if small:
            zero = torch.zeros_like(ours[key])
            parts = [ours.pop(f'{block}{letter}_bias', zero) for letter in 'qkv']
            ours[f'{block}bias'] = torch.cat(parts)
        else:
            drop_equal(ours, re.escape(f'{block}k_bias'), 0)
    return ours


def drop(weights: StateDict, pattern: str) -> None:
    """Remove weights by their keys."""
    for key in [key for key in weights if re.fullmatch(pattern, key)]:
        del weights[key]


def drop_equal(weights: StateDict, pattern: str, value: float) -> None:
    """Remove weights that have one value everywhere."""
    for key in [key for key in weights if re.fullmatch(pattern, key)]:
        if not weights[key].is_meta and bool((weights[key] == value).all()):
            del weights[key]


def check_settings(weights: StateDict, name: str) -> None:
    """Raise CheckpointError for settings of the decoder, or a layer, that ours has not so."""
    for key, x in weights.items():
        expected = SETTINGS.get(key.rpartition('.')[2])
        if expected is not None and not x.is_meta and float(x) != expected:
            raise CheckpointError(f'{name}: {key} is {float(x):g}, and {expected:g} is supported')
    linear = weights.get('model.enc_output.0.weight')
    if linear is None or linear.is_meta:
        return
    identity = torch.eye(len(linear), dtype=linear.dtype)
    if not torch.equal(linear.cpu(), identity):
        raise CheckpointError(
            f'{name}: model.enc_output was trained; the authors have no such layer, nor has ours'
        )


# ---------------------------------------------------------------- back


def to_published(ours: StateDict, kind: str) -> StateDict:
    """Weights of one of our detectors under the names of its authors' code.

    Args:
        ours: of a whole DEIM.
        kind: 'deimv2' or 'edgecrafter'.

    Raises:
        CheckpointError: they are of another detector.
    """
    layout = LAYOUTS[kind]
    table = key_table((new, old) for old, new in layout.rows)
    backbone = {
        key.removeprefix(BACKBONE): x for key, x in ours.items() if key.startswith(BACKBONE)
    }
    others = {key: x for key, x in ours.items() if not key.startswith(BACKBONE)}
    unknown = [key for key in others if not find_row(key, table)[0]]
    if unknown or not backbone:
        raise CheckpointError(
            f'these are not the weights of a detector of {layout.name}: '
            f'{listed(unknown) or "no backbone"}'
        )
    published = renamed(others, table)
    if kind == 'edgecrafter':
        prefix, weights = 'backbone.backbone.', to_ecvit(backbone)
    elif 'reg_token' in backbone:
        prefix, weights = 'backbone.dinov3.', to_meta(backbone)
    else:
        prefix, weights = 'backbone.dinov3._model.', backbone
    weights['rope_embed.periods'] = 100.0 ** (torch.arange(16) / 16)
    return {**{f'{prefix}{key}': x for key, x in weights.items()}, **published}


def to_ecvit(weights: StateDict) -> StateDict:
    """ECViT's weights under EdgeCrafter's names."""
    rows = [
        ('reg_token', 'register_token'),
        ('patch_embed.convs.#.bn.*', 'patch_embed.convs.#.norm.*'),
    ]
    return renamed(weights, key_table(rows))


def to_meta(weights: StateDict) -> StateDict:
    """DINOv3's weights under Meta's names, with biases of 0 of the keys."""
    rows = [
        ('reg_token', 'storage_tokens'),
        ('blocks.#.gamma_1', 'blocks.#.ls1.gamma'),
        ('blocks.#.gamma_2', 'blocks.#.ls2.gamma'),
    ]
    if has(weights, r'.+\.mlp\.fc1_g\.weight'):
        names = dict(fc1_g='w1', fc1_x='w2', fc2='w3')
        rows += [(f'blocks.#.mlp.{a}.*', f'blocks.#.mlp.{b}.*') for a, b in names.items()]
    weights = dict(weights)
    for key in [key for key in weights if key.endswith('.qkv.q_bias')]:
        block, q = key.removesuffix('q_bias'), weights.pop(key)
        zero, v = torch.zeros_like(q), weights.pop(key.replace('q_bias', 'v_bias'))
        weights[f'{block}bias'] = torch.cat([q, zero, v])
        weights[f'{block}bias_mask'] = torch.cat([torch.ones_like(q), zero, torch.ones_like(v)])
    return renamed(weights, key_table(rows))
