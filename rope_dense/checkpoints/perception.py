"""The key layout of Perception Encoder (Bolya et al., 2025) in Meta's own files.

Names are those of the published code, its CLIP model's ``visual.``; checked against timm's
conversion of the same files. timm's own layout is in timm_vit.py.
"""

from __future__ import annotations

from .keys import KeyTable, StateDict, has, renamed
from .timm_vit import fold_class_slot

BLOCK = r'transformer\.resblocks\.(\d+)\.'
IN_PROJ = BLOCK + r'attn\.in_proj_weight'
KEYS: KeyTable = {
    r'conv1\.weight': 'patch_embed.proj.weight',
    r'class_embedding': 'cls_token',
    r'positional_embedding': 'pos_embed',
    r'ln_pre\.(.+)': r'norm_pre.\1',
    r'ln_post\.(.+)': r'norm.\1',
    BLOCK + r'attn\.in_proj_(weight|bias)': r'blocks.\1.attn.qkv.\2',
    BLOCK + r'attn\.out_proj\.(.+)': r'blocks.\1.attn.proj.\2',
    BLOCK + r'ln_([12])\.(.+)': r'blocks.\1.norm\2.\3',
    BLOCK + r'ls_([12])\.gamma': r'blocks.\1.gamma_\2',
    BLOCK + r'mlp\.c_fc\.(.+)': r'blocks.\1.mlp.fc1.\2',
    BLOCK + r'mlp\.c_proj\.(.+)': r'blocks.\1.mlp.fc2.\2',
    r'attn_pool\..+|proj': None,  # the head
}


def is_perception_encoder(weights: StateDict) -> bool:
    """Not a ViT of CLIP: those have the same names, and project the class token without a pool."""
    return has(weights, r'attn_pool\..+') or 'proj' not in weights


def from_meta(weights: StateDict) -> StateDict:
    """Names; the class token [C] becomes [1, 1, C] and takes up its place in the position
    embedding [1 + N, C], which becomes [1, N, C]."""
    ours = renamed(weights, KEYS)
    if 'cls_token' in ours:
        ours['cls_token'] = ours['cls_token'].reshape(1, 1, -1)
    if 'pos_embed' in ours:
        ours['pos_embed'] = ours['pos_embed'][None]
    return fold_class_slot(ours)
