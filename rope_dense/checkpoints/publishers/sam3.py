"""Key layouts of SAM3's image encoder (Carion et al., 2025): Meta's, Hugging Face transformers'.

Names are from the published code. Frequencies are not loaded: both store, at most, what the
model computes for one image size.
"""

from __future__ import annotations

from ..keys import VIT_BLOCK, KeyTable, Layout

META_KEYS: KeyTable = {
    r'ln_pre\.(.+)': r'norm_pre.\1',
    r'blocks\.\d+\.attn\.freqs_cis': None,  # of images of 1008 pixels
}
HF_KEYS: KeyTable = {
    r'embeddings\.position_embeddings': 'pos_embed',
    r'embeddings\.patch_embeddings\.projection\.(.+)': r'patch_embed.proj.\1',
    r'layer_norm\.(.+)': r'norm_pre.\1',
    r'layers\.(\d+)\.layer_norm([12])\.(.+)': r'blocks.\1.norm\2.\3',
    r'layers\.(\d+)\.attention\.{q_proj,k_proj,v_proj}\.(.+)': r'blocks.\1.attn.qkv.\2',
    r'layers\.(\d+)\.attention\.o_proj\.(.+)': r'blocks.\1.attn.proj.\2',
    r'layers\.(\d+)\.mlp\.(.+)': r'blocks.\1.mlp.\2',
    r'layers\.\d+\.rotary_emb\..+': None,  # of images of 1008 pixels
}
LAYOUTS = (
    Layout(
        'Meta SAM3',
        (VIT_BLOCK, r'ln_pre\..+'),
        META_KEYS,
        # [1, 1 + N, C] without the place of the class token that its pre-training had: it has none.
        {'pos_embed': lambda positions: positions[:, 1:]},
    ),
    Layout('Hugging Face SAM3', (r'layers\.\d+\.attention\.q_proj\.weight',), HF_KEYS),
)
