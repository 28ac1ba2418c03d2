"""timm's key layouts of ViTs with rotary embedding, its class ``Eva``, to ours and back.

Names are ours but for EVA-02's and Perception Encoder's. In those the position embedding begins
with the position of the class token. Ours has none: it is added to the class token. The gigantic
Perception Encoder has neither.

Letters: N tokens of the grid, C channels.
"""

import torch

from ...backbones import RoPEViT
from ..errors import CheckpointError
from ..incompatible import mlp_kind, nearest_archs
from ..keys import (
    SWIN_BLOCK,
    VIT_BLOCK,
    Layout,
    Rows,
    StateDict,
    has_cls_pos_embed,
    has_key,
    refuse_adapters,
    rename_weights,
    reversed_rows,
)

HEAD = '{head,fc_norm,attn_pool}.*'
NAMES: Rows = [  # and names of our earlier versions
    ('rope.freqs', 'blocks.%.attn.rope.freqs'),
    ('*.attn.{q,v}_bias', '*.attn.qkv.{q,v}_bias'),
]
TIMM: Rows = [
    (HEAD, None),
    *NAMES,
    (None, 'rope.periods'),  # Meta's, which timm's code computes
]
SEPARATE: Rows = [  # EVA-02 base and large
    ('*.attn.{q,k,v}_proj.weight', '*.attn.qkv.weight'),
    ('*.attn.{q,v}_proj.bias', '*.attn.qkv.{q,v}_bias'),
    (HEAD, None),
]
PACKED: Rows = [  # EVA-02 tiny and small
    ('blocks.#.mlp.fc1.*', 'blocks.#.mlp.fc1_{g,x}.*'),
    (HEAD, None),
    *NAMES,
]
# Starts of the names of architectures.
NOT_IN_TIMM = {'sam3': 'encoder of SAM3', 'vjepa2_1': 'V-JEPA', 'sapiens2': 'Sapiens2'}
TO_TIMM, TO_SEPARATE, TO_PACKED = map(reversed_rows, (TIMM, SEPARATE, PACKED))


def has_packed_mlp(weights: StateDict) -> bool:
    """True if fc1 holds both halves of SwiGLU: no other MLP has twice the rows of fc2."""
    first = weights.get('blocks.0.mlp.fc1.weight')
    last = weights.get('blocks.0.mlp.fc2.weight')
    return first is not None and last is not None and len(first) == 2 * last.shape[-1]


EVA02_BLOCK = 'blocks.#.attn.q_proj.weight'
LAYOUTS = (
    Layout('timm EVA-02', (EVA02_BLOCK,), SEPARATE, folds_cls_pos_embed=True),
    Layout(
        'timm EVA-02 with packed MLP',
        (VIT_BLOCK,),
        PACKED,
        folds_cls_pos_embed=True,
        test=has_packed_mlp,
    ),
    Layout(
        'timm Perception Encoder',
        (VIT_BLOCK, 'norm_pre.weight'),
        TIMM,
        folds_cls_pos_embed=True,
        test=has_cls_pos_embed,
        has_reference=True,
    ),
    # Without learned frequencies naver's names are timm's.
    Layout('timm or naver ViT', (VIT_BLOCK, HEAD), TIMM, folds_cls_pos_embed=True),
    # timm's DINOv3 has names that are ours, or were in earlier versions, and nothing else.
)


def to_timm_rows(weights: StateDict) -> Rows:
    """The rows from our keys to timm's, by family; CheckpointError if timm has no such model."""
    refuse_adapters(weights)
    if has_key(weights, SWIN_BLOCK):
        raise CheckpointError(
            'timm has no Swin with rotary embedding: use --to naver or ours'
        )
    if not has_key(weights, VIT_BLOCK):
        raise CheckpointError('these are not the weights of a RoPEViT')
    if has_key(weights, '*.rope.angle_offset'):
        raise CheckpointError('timm has no MLCD or RICE: use --to ours')
    nearest = nearest_archs(weights)
    for start, model in NOT_IN_TIMM.items():
        for kind, name in nearest:
            if kind is RoPEViT and name.startswith(start):
                raise CheckpointError(f'timm has no {model}: use --to ours')
    if has_key(weights, 'norm#.weight'):
        raise CheckpointError(
            'timm has no ViT with several norms of outputs: use --to ours'
        )
    mlp = mlp_kind(weights)
    if mlp == 'swiglu_norm':
        return TO_SEPARATE
    if mlp == 'swiglu' and has_key(weights, '*.qkv.q_bias') and 'pos_embed' in weights:
        return TO_PACKED
    return TO_TIMM


def to_timm(weights: StateDict) -> StateDict:
    """Weights under timm's names; the argument is not changed.

    Where timm's pos_embed has a position of the class token, it is zero, because our class token
    has its position in it. Without a class token timm has no such position: in the gigantic
    Perception Encoder, or another model with ``class_token=False``.
    """
    rows = to_timm_rows(weights)
    timm = rename_weights(weights, rows)
    has_place = rows is not TO_TIMM or 'norm_pre.weight' in timm
    if has_place and 'pos_embed' in timm and 'cls_token' in timm:
        place = torch.zeros_like(timm['pos_embed'][:, :1])
        timm['pos_embed'] = torch.cat([place, timm['pos_embed']], 1)
    return timm
