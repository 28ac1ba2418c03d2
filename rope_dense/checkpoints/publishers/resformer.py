"""The key layout of ResFormer (Tian et al., CVPR 2023)."""

from ..keys import VIT_BLOCK, KeyTable, Layout

CONV = r'pos_embed\.embed_layer\.(weight|bias)'
KEYS: KeyTable = {
    CONV: r'sine_embed.conv.\1',
    r'(blocks\.\d+\.attn)\.get_v\.(weight|bias)': r'\1.local.\2',
    r'head\..+': None,
}
LAYOUTS = (Layout('ResFormer', (VIT_BLOCK, CONV), KEYS),)
