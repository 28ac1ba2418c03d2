"""Naver's key layouts: ViT and Swin of Heo et al., and Microsoft's Swin, which theirs is built on.

Letters: L blocks (of a stage), h heads, P channel pairs of a head, C channels.
"""

from __future__ import annotations

import re

import torch

from .errors import CheckpointError
from .keys import SWIN_BLOCK, KeyTable, StateDict, by_stage, new_keys, renamed

VIT_PAIRS = 32  # P of all published ViTs: heads of 64 channels
SWIN_PAIRS = 16  # and of all published Swins

NAVER_VIT_KEYS: KeyTable = {
    r'freqs': 'rope.freqs',  # [2, L, C / 2] to [2, L, h, P]
    r'freqs_t_[xy]': None,  # positions of the pre-training grid
    r'head\..+': None,
}
NAVER_SWIN_KEYS: KeyTable = {
    r'layers\.(\d+)\.blocks\.\d+\.attn\.rope_freqs': r'layers.\1.rope.freqs',  # L of [2, h, P]
    r'.+\.rope_t_[xy]': None,  # positions in a window
    r'.+\.relative_position_index': None,  # which the backbone computes
    r'.+\.relative_coords_table': None,
    r'.+\.attn_mask': None,  # of the pre-training image size
    r'head\..+': None,
}
TO_NAVER_KEYS: KeyTable = {
    r'rope\.freqs': 'freqs',
    r'layers\.(\d+)\.rope\.freqs': r'layers.\1.blocks.*.attn.rope_freqs',
}
# Parts that none of its models has.
OTHERS = r'reg_token|norm_pre\..+|blocks\.\d+\.(attn\.(norm\..+|[qv]_bias)|mlp\.(fc1_g|norm)\..+)'
SWIN_FREQS = r'layers\.(\d+)\.blocks\.(\d+)\.attn\.rope_freqs'


def from_naver_vit(weights: StateDict) -> StateDict:
    """Names, and the heads of the frequencies: their channels are ordered by head."""
    ours, freqs = renamed(weights, NAVER_VIT_KEYS), weights['freqs']
    if freqs.shape[-1] % VIT_PAIRS:
        raise CheckpointError(f'freqs is {list(freqs.shape)}: no heads of {2 * VIT_PAIRS} channels')
    return {**ours, 'rope.freqs': freqs.unflatten(-1, (-1, VIT_PAIRS))}


def from_naver_swin(weights: StateDict) -> StateDict:
    """Names, and the frequencies of all blocks of a stage in one tensor."""
    stages = by_stage(weights, SWIN_FREQS)
    names = {
        stage: [
            f'layers.{stage}.blocks.{block}.attn.rope_freqs'
            for block in sorted(blocks | by_stage(weights, SWIN_BLOCK)[stage])
        ]
        for stage, blocks in stages.items()
    }
    of_freqs = {name for of_stage in names.values() for name in of_stage}
    others = {key: tensor for key, tensor in weights.items() if key not in of_freqs}
    return renamed(others, NAVER_SWIN_KEYS) | {
        f'layers.{stage}.rope.freqs': stacked(weights, of_stage)
        for stage, of_stage in names.items()
    }


def stacked(weights: StateDict, names: list[str]) -> torch.Tensor:
    """The frequencies [2, h, P] of the blocks of a stage as [2, L, h, P]."""
    if missing := [key for key in names if key not in weights]:
        raise CheckpointError(f'the checkpoint lacks {", ".join(missing)}')
    shapes = {key: list(weights[key].shape) for key in names}
    if any(shape != shapes[names[0]] for shape in shapes.values()):
        raise CheckpointError(f'frequencies of one stage differ in shape: {shapes}')
    return torch.stack([weights[key] for key in names], 1)


def to_naver(weights: StateDict) -> StateDict:
    """Learned weights only: naver's code computes its buffers and loads without them."""
    if others := [key for key in weights if re.fullmatch(OTHERS, key)]:
        raise CheckpointError(f'naver has no model with {others[0]}: use --to timm or ours')
    naver = {}
    for key, tensor in weights.items():
        (new,) = new_keys(key, TO_NAVER_KEYS)
        if new == key:
            naver[key] = tensor
            continue
        pairs = SWIN_PAIRS if '*' in new else VIT_PAIRS
        if tensor.shape[-1] != pairs:
            raise CheckpointError(
                f"{key} is {list(tensor.shape)}: naver's frequencies have {pairs} pairs for each "
                'head and mix x and y'
            )
        if '*' in new:
            naver |= {
                new.replace('*', str(block)): freqs.clone()
                for block, freqs in enumerate(tensor.unbind(1))
            }
        else:
            naver[new] = tensor.flatten(2)
    return naver
