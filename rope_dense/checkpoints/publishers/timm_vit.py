"""timm's key layouts of ViTs with rotary embedding, its class ``Eva``, to ours and back.

Names are ours but for EVA-02's and Perception Encoder's. In those the position embedding begins
with the position of the class token. Ours has none: it is added to the class token. The gigantic
Perception Encoder has neither.

Letters: N tokens of the grid, C channels.
"""

from __future__ import annotations

import torch

from ...backbones import RoPEViT
from ..architectures import mlp_kind, nearest_archs
from ..errors import CheckpointError
from ..keys import (
    SWIN_BLOCK,
    VIT_BLOCK,
    VIT_FREQS,
    KeyTable,
    Layout,
    StateDict,
    has,
    has_cls_pos_embed,
    refuse_adapters,
    renamed,
    stack_blocks,
)

HEAD = r'(head|fc_norm|attn_pool)\..+'
NAMES: KeyTable = {  # and names of our earlier versions
    r'rope\.freqs': 'blocks.*.attn.rope.freqs',
    r'(.+\.attn\.)([qv]_bias)': r'\1qkv.\2',
}
TIMM_KEYS: KeyTable = {HEAD: None, **NAMES}
SEPARATE_KEYS: KeyTable = {  # EVA-02 base and large
    r'(.+\.attn\.){q_proj,k_proj,v_proj}\.weight': r'\1qkv.weight',
    r'(.+\.attn\.)([qv])_proj\.bias': r'\1qkv.\2_bias',
    HEAD: None,
}
PACKED_KEYS: KeyTable = {  # EVA-02 tiny and small
    r'(blocks\.\d+\.mlp\.fc1)\.(weight|bias)': r'\1_{g,x}.\2',
    **TIMM_KEYS,
}
TO_NAMES: KeyTable = {VIT_FREQS: 'rope.freqs', r'(.+\.attn\.)qkv\.([qv]_bias)': r'\1\2'}
TO_TIMM_KEYS: KeyTable = {**TO_NAMES, r'rope\.periods': None}  # Meta's, which timm's code computes
TO_SEPARATE_KEYS: KeyTable = {
    r'(.+\.attn\.)qkv\.weight': r'\1{q_proj,k_proj,v_proj}.weight',
    r'(.+\.attn\.)qkv\.([qv])_bias': r'\1\2_proj.bias',
}
TO_PACKED_KEYS: KeyTable = {
    r'(blocks\.\d+\.mlp\.){fc1_g,fc1_x}\.(weight|bias)': r'\1fc1.\2',
    **TO_NAMES,
}


def has_packed_mlp(weights: StateDict) -> bool:
    """True if fc1 holds both halves of SwiGLU: no other MLP has twice the rows of fc2."""
    first, last = (weights.get(f'blocks.0.mlp.{name}.weight') for name in ('fc1', 'fc2'))
    return first is not None and last is not None and len(first) == 2 * last.shape[-1]


EVA02_BLOCK = r'blocks\.\d+\.attn\.q_proj\.weight'
LAYOUTS = (
    Layout('timm EVA-02', (EVA02_BLOCK,), SEPARATE_KEYS, has_cls_pos_embed=True),
    Layout(
        'timm EVA-02 with packed MLP',
        (VIT_BLOCK,),
        PACKED_KEYS,
        has_cls_pos_embed=True,
        test=has_packed_mlp,
    ),
    Layout(
        'timm Perception Encoder',
        (VIT_BLOCK, r'norm_pre\.weight'),
        TIMM_KEYS,
        has_cls_pos_embed=True,
        test=has_cls_pos_embed,
        has_reference=True,
    ),
    # Without learned frequencies naver's names are timm's.
    Layout('timm or naver ViT', (VIT_BLOCK, HEAD), TIMM_KEYS, has_cls_pos_embed=True),
    # timm's DINOv3 has names that are ours, or were in earlier versions, and nothing else.
)


def to_timm_keys(weights: StateDict) -> KeyTable:
    """The table from our keys to timm's, which depends on the family.

    Raises:
        CheckpointError: timm has no such model.
    """
    refuse_adapters(weights)
    if has(weights, SWIN_BLOCK):
        raise CheckpointError('timm has no Swin with rotary embedding: use --to naver or ours')
    if not has(weights, VIT_BLOCK):
        raise CheckpointError('these are not the weights of a RoPEViT')
    if (RoPEViT, 'sam3') in nearest_archs(weights):
        raise CheckpointError('timm has no encoder of SAM3: use --to ours')
    mlp = mlp_kind(weights)
    if mlp == 'swiglu_norm':
        return TO_SEPARATE_KEYS
    if mlp == 'swiglu' and has(weights, r'.+\.qkv\.q_bias') and 'pos_embed' in weights:
        return TO_PACKED_KEYS
    return TO_TIMM_KEYS


def to_timm(weights: StateDict) -> StateDict:
    """Weights under timm's names; the argument is not changed.

    Where timm's pos_embed has a position of the class token, it is zero, because our class token
    has its position in it. Without a class token timm has no such position: in the gigantic
    Perception Encoder, or another model with ``class_token=False``.
    """
    keys = to_timm_keys(weights)
    timm = renamed(stack_blocks(weights, 'rope.freqs'), keys)
    has_place = keys is not TO_TIMM_KEYS or 'norm_pre.weight' in timm
    if has_place and 'pos_embed' in timm and 'cls_token' in timm:
        place = torch.zeros_like(timm['pos_embed'][:, :1])
        timm['pos_embed'] = torch.cat([place, timm['pos_embed']], 1)
    return timm
