"""Key layout of MLCD and RICE (An et al., 2024; Xie et al., 2025) in Hugging Face transformers.

Names are from transformers' ``MLCDVisionModel``, checked with random weights against that model in
tests/checkpoints/test_mlcd.py. MLCD's ViT-L/14-336 and ViT-B/32-224 are CLIP's ViT, which is
refused.
"""

from typing import NoReturn

from ..errors import CheckpointError
from ..keys import VIT_BLOCK, Layout, Rows, StateDict, matching_keys, rows_within

OFFSET = 'class_pos_emb'  # [1, D / 2], the angles of the class token
NAMES: Rows = [
    ('embeddings.class_embedding', 'cls_token'),
    ('embeddings.patch_embedding.weight', 'patch_embed.proj.weight'),
    ('embeddings.position_ids', None),
    ('vision_rotary_embedding.*', None),  # computed
    ('pre_layrnorm.*', 'norm_pre.*'),
    ('post_layernorm.*', 'norm.*'),  # of the class token alone
    (OFFSET, OFFSET),
    *rows_within(
        'encoder.layers.#',
        'blocks.#',
        ('layer_norm#.*', 'norm#.*'),
        ('self_attn.{q,k,v}_proj.*', 'attn.qkv.*'),
        ('self_attn.out_proj.*', 'attn.proj.*'),
        ('mlp.*', 'mlp.*'),
    ),
]
PREFIXES = ('', 'vision_model.')
QUERY = 'encoder.layers.#.self_attn.q_proj.weight'


class MLCDLayout(Layout):
    """The layout of MLCD, which has one tensor of angles for all blocks."""

    def to_ours(self, weights: StateDict) -> StateDict:
        """Weights with the angles of the class token in each block, equal in all."""
        ours = super().to_ours(weights)
        offset = ours.pop(OFFSET)
        for key in matching_keys(ours, VIT_BLOCK):
            ours[key.replace('qkv.weight', 'rope.angle_offset')] = offset
        return ours


class NotRotaryLayout(Layout):
    """The layout of a ViT without rotary embedding, which is named and refused."""

    def to_ours(self, weights: StateDict) -> NoReturn:
        """Raise CheckpointError."""
        raise CheckpointError(
            'a ViT with a table of positions and no rotary embedding, which RoPEViT has not. Of '
            'MLCD, the ViT-bigG/14 are rotary, and RICE ViT-L/14-560'
        )


def prefixed(name: str) -> str:
    """A name, with and without the prefix of transformers' earlier versions."""
    return f'{{{",".join(prefix + name for prefix in PREFIXES)}}}'


LAYOUTS = (
    MLCDLayout(
        'Hugging Face MLCD',
        (prefixed(QUERY), prefixed(OFFSET)),
        [(prefix + old, new) for prefix in PREFIXES for old, new in NAMES if old],
        {prefixed('embeddings.class_embedding'): lambda token: token.reshape(1, 1, -1)},
    ),
    NotRotaryLayout(
        'Hugging Face CLIP, not rotary',
        (prefixed(QUERY), prefixed('embeddings.position_embedding.weight')),
        [],
    ),
)
