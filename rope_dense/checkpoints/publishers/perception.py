"""The key layout of Perception Encoder (Bolya et al., 2025) in Meta's own files.

Names are from the published code, its CLIP model's ``visual.``; checked against timm's
conversion of the same files. timm's own layout is in timm_vit.py.
"""

from ..keys import Layout, Rows, StateDict, has_key, rows_within

BLOCK = 'transformer.resblocks.#'
ROWS: Rows = [
    ('conv1.weight', 'patch_embed.proj.weight'),
    ('class_embedding', 'cls_token'),
    ('positional_embedding', 'pos_embed'),
    ('ln_pre.*', 'norm_pre.*'),
    ('ln_post.*', 'norm.*'),
    *rows_within(
        BLOCK,
        'blocks.#',
        ('attn.in_proj_*', 'attn.qkv.*'),
        ('attn.out_proj.*', 'attn.proj.*'),
        ('ln_#.*', 'norm#.*'),
        ('ls_#.gamma', 'gamma_#'),
        ('mlp.{c_fc,c_proj}.*', 'mlp.{fc1,fc2}.*'),
    ),
    ('attn_pool.*', None),  # the head
    ('proj', None),
]


def is_perception_encoder(weights: StateDict) -> bool:
    """Not a ViT of CLIP: those have the same names, and project the class token without a pool."""
    return has_key(weights, 'attn_pool.*') or 'proj' not in weights


LAYOUTS = (
    Layout(
        'Meta Perception Encoder',
        (f'{BLOCK}.attn.in_proj_weight', '{conv1.weight,ln_pre.*}'),
        ROWS,
        {
            'class_embedding': lambda token: token.reshape(1, 1, -1),
            'positional_embedding': lambda positions: positions[None],  # [1, 1 + N, C]
        },
        folds_cls_pos_embed=True,
        test=is_perception_encoder,
        has_reference=True,
    ),
)
