"""Key layouts of SAM3's image encoder (Carion et al., 2025): Meta's, Hugging Face transformers'.

Names are from the published code. Frequencies are not loaded: both store, at most, what the
model computes for one image size.
"""

from ..keys import VIT_BLOCK, Layout, Rows

META: Rows = [
    ('ln_pre.*', 'norm_pre.*'),
    ('blocks.#.attn.freqs_cis', None),  # of images of 1008 pixels
]
HF: Rows = [
    ('embeddings.position_embeddings', 'pos_embed'),
    ('embeddings.patch_embeddings.projection.*', 'patch_embed.proj.*'),
    ('layer_norm.*', 'norm_pre.*'),
    ('layers.#.layer_norm#.*', 'blocks.#.norm#.*'),
    ('layers.#.attention.{q,k,v}_proj.*', 'blocks.#.attn.qkv.*'),
    ('layers.#.attention.o_proj.*', 'blocks.#.attn.proj.*'),
    ('layers.#.mlp.*', 'blocks.#.mlp.*'),
    ('layers.#.rotary_emb.*', None),  # of images of 1008 pixels
]
LAYOUTS = (
    Layout(
        'Meta SAM3',
        (VIT_BLOCK, 'ln_pre.*'),
        META,
        # [1, 1 + N, C] without the place of the class token that its pre-training had: it has none.
        {'pos_embed': lambda positions: positions[:, 1:]},
    ),
    Layout('Hugging Face SAM3', ('layers.#.attention.q_proj.weight',), HF),
)
