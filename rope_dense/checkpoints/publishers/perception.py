"""The key layout of Perception Encoder (Bolya et al., 2025) in Meta's own files.

Names are from the published code, its CLIP model's ``visual.``; checked against timm's
conversion of the same files. timm's own layout is in timm_vit.py.
"""

from __future__ import annotations

from ..keys import KeyTable, Layout, StateDict, has

BLOCK = r'transformer\.resblocks\.(\d+)\.'
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


LAYOUTS = (
    Layout(
        'Meta Perception Encoder',
        (BLOCK + r'attn\.in_proj_weight', r'conv1\.weight|ln_pre\..+'),
        KEYS,
        {
            'class_embedding': lambda token: token.reshape(1, 1, -1),
            'positional_embedding': lambda positions: positions[None],  # [1, 1 + N, C]
        },
        has_cls_pos_embed=True,
        test=is_perception_encoder,
        has_reference=True,
    ),
)
