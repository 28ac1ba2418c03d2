"""The key layout of ResFormer (Tian et al., CVPR 2023)."""

from ..keys import VIT_BLOCK, Layout, Rows

CONV = 'pos_embed.embed_layer.*'
ROWS: Rows = [
    (CONV, 'sine_embed.conv.*'),
    ('blocks.#.attn.get_v.*', 'blocks.#.attn.local.*'),
    ('head.*', None),
]
LAYOUTS = (Layout('ResFormer', (VIT_BLOCK, CONV), ROWS),)
