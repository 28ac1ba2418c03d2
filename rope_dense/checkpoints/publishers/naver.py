"""Naver's key layouts: ViT and Swin of Heo et al., and Microsoft's Swin, which theirs is built on.

Letters: L blocks, h heads, P rotated channel pairs of a head, C channels.
"""

from __future__ import annotations

import re

from torch import Tensor

from ..errors import CheckpointError
from ..keys import (
    SWIN_BLOCK,
    SWIN_FREQS,
    VIT_BLOCK,
    VIT_FREQS,
    KeyTable,
    Layout,
    StateDict,
    refuse_adapters,
    renamed,
    stack_blocks,
)

VIT_PAIRS = 32  # P of all published ViTs: heads of 64 channels
SWIN_PAIRS = 16  # and of all published Swins

NAVER_VIT_KEYS: KeyTable = {
    r'freqs': 'blocks.*.attn.rope.freqs',  # [2, L, C / 2]
    r'freqs_t_[xy]': None,  # positions of the pre-training grid
    r'head\..+': None,
}
NAVER_SWIN_KEYS: KeyTable = {
    r'(.+\.attn\.)rope_freqs': r'\1rope.freqs',
    r'.+\.rope_t_[xy]': None,  # positions in a window
    r'.+\.relative_position_index': None,  # which the backbone computes
    r'.+\.relative_coords_table': None,
    r'.+\.attn_mask': None,  # of the pre-training image size
    r'head\..+': None,
}
TO_NAVER_KEYS: KeyTable = {
    VIT_FREQS: 'freqs',
    SWIN_FREQS: r'layers.\1.blocks.\2.attn.rope_freqs',
}
# Parts that none of its models has.
OTHERS = (
    r'reg_token|norm_pre\..+|'
    r'blocks\.\d+\.(attn\.(norm\..+|qkv\.[qv]_bias)|mlp\.(fc1_g|norm)\..+)'
)


def by_head(freqs: Tensor) -> Tensor:
    """Frequencies [2, L, C / 2], whose channels are ordered by head, as [2, L, h, P]."""
    return freqs.unflatten(-1, (-1, VIT_PAIRS))


LAYOUTS = (
    Layout('naver Swin', (r'layers\.\d+\.blocks\.\d+\.attn\.rope_freqs',), NAVER_SWIN_KEYS),
    Layout(
        'Swin with relative position bias',
        (SWIN_BLOCK, r'.+\.relative_position_index'),
        NAVER_SWIN_KEYS,
    ),
    Layout('naver ViT', (VIT_BLOCK, 'freqs'), NAVER_VIT_KEYS, {'freqs': by_head}),
)


def to_naver(weights: StateDict) -> StateDict:
    """Learned weights only: naver's code computes its buffers and loads without them.

    Raises:
        CheckpointError: naver has no such model.
    """
    refuse_adapters(weights)
    if others := [key for key in weights if re.fullmatch(OTHERS, key)]:
        raise CheckpointError(f'naver has no model with {others[0]}: use --to timm or ours')
    for key, tensor in weights.items():
        for pattern, pairs in ((VIT_FREQS, VIT_PAIRS), (SWIN_FREQS, SWIN_PAIRS)):
            if re.fullmatch(pattern, key) and tensor.shape[-1:] != (pairs,):
                raise CheckpointError(
                    f"{key} is {list(tensor.shape)}: naver's frequencies have {pairs} pairs for "
                    'each head and mix x and y'
                )
    naver = renamed(stack_blocks(weights, 'freqs'), TO_NAVER_KEYS)
    if 'freqs' in naver:
        naver['freqs'] = naver['freqs'].flatten(2)  # [2, L, C / 2]
    return naver
