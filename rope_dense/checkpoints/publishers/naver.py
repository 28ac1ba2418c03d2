"""Naver's key layouts: ViT and Swin of Heo et al., and Microsoft's Swin, which theirs is built on.

Letters: L blocks, h heads, P rotated channel pairs of a head, C channels.
"""

from torch import Tensor

from ..errors import CheckpointError
from ..keys import (
    SWIN_BLOCK,
    VIT_BLOCK,
    Layout,
    Rows,
    StateDict,
    matches,
    refuse_adapters,
    rename_weights,
    reversed_rows,
)

VIT_PAIRS = 32  # P of all published ViTs: heads of 64 channels
SWIN_PAIRS = 16  # and of all published Swins
VIT_FREQS = 'blocks.%.attn.rope.freqs'
SWIN_FREQS = 'layers.#.blocks.#.attn.rope.freqs'

VIT: Rows = [
    ('freqs', VIT_FREQS),  # [2, L, C / 2]
    ('freqs_t_{x,y}', None),  # positions of the pre-training grid
    ('head.*', None),
]
SWIN: Rows = [
    ('layers.#.blocks.#.attn.rope_freqs', SWIN_FREQS),
    ('*.attn.rope_t_{x,y}', None),  # positions in a window
    ('*.relative_position_index', None),  # which the backbone computes
    ('*.relative_coords_table', None),
    ('*.attn_mask', None),  # of the pre-training image size
    ('head.*', None),
]
TO_NAVER = reversed_rows(VIT + SWIN)
# Parts that none of its models has.
OTHERS = (
    'reg_token',
    'norm_pre.*',
    'blocks.#.attn.{norm.*,q_norm.*,qkv.q_bias,qkv.v_bias}',
    'blocks.#.mlp.{fc1_g,norm}.*',
)


def by_head(freqs: Tensor) -> Tensor:
    """Frequencies [2, L, C / 2], whose channels are ordered by head, as [2, L, h, P]."""
    return freqs.unflatten(-1, (-1, VIT_PAIRS))


LAYOUTS = (
    Layout('naver Swin', ('layers.#.blocks.#.attn.rope_freqs',), SWIN),
    Layout(
        'Swin with relative position bias',
        (SWIN_BLOCK, '*.relative_position_index'),
        SWIN,
    ),
    Layout('naver ViT', (VIT_BLOCK, 'freqs'), VIT, {'freqs': by_head}),
)


def to_naver(weights: StateDict) -> StateDict:
    """Learned weights only: naver's code computes its buffers and loads without them.

    Raises:
        CheckpointError: naver has no such model.
    """
    refuse_adapters(weights)
    for key in weights:
        if any(matches(key, name) for name in OTHERS):
            raise CheckpointError(
                f'naver has no model with {key}: use --to timm or ours'
            )
    for key, tensor in weights.items():
        for freqs, pairs in ((VIT_FREQS, VIT_PAIRS), (SWIN_FREQS, SWIN_PAIRS)):
            if matches(key, freqs) and tensor.shape[-1:] != (pairs,):
                raise CheckpointError(
                    f"{key} is {list(tensor.shape)}: naver's frequencies have {pairs} pairs for "
                    'each head and mix x and y'
                )
    naver = rename_weights(weights, TO_NAVER)
    if 'freqs' in naver:
        naver['freqs'] = naver['freqs'].flatten(2)  # [2, L, C / 2]
    return naver
