"""SHI-Labs' key layouts: NAT, DiNAT, DiNAT-s, and a plain ViT with relative position bias.

The plain ViT is from ``isotropic.py`` in NAT's repository.

Letters: h heads, K x K tokens of a neighbourhood.
"""

from __future__ import annotations

from torch import Tensor

from ..keys import SWIN_BLOCK, KeyTable, Layout


def bias_rows(table: Tensor) -> Tensor:
    """A bias table [h, 2 K - 1, 2 K - 1] as rows [(2 K - 1) ** 2, h].

    The table is over offsets key - query, the rows are over offsets query - key.
    """
    return table.flip(1, 2).flatten(1).T


NAT_BLOCK = r'levels\.\d+\.blocks\.\d+\.attn\.qkv\.weight'
BLOCK = r'(?:levels|layers)\.(\d+\.blocks\.\d+\.)'
KEYS: KeyTable = {
    rf'{BLOCK}gamma([12])': r'layers.\1gamma_\2',
    rf'{BLOCK}attn\.rpb': r'layers.\1attn.relative_position_bias_table',
    r'levels\.(.+)': r'layers.\1',
    r'head\..+': None,
}
VIT_KEYS: KeyTable = {
    r'layers\.(\d+)\.attn\.rpb': r'blocks.\1.attn.relative_position_bias_table',
    r'layers\.\d+\.attn\.relative_position_index': None,  # which the backbone computes
    r'layers\.(\d+)\.(.+)': r'blocks.\1.\2',
    r'head\..+': None,
}
TABLES = {r'.+\.attn\.rpb': bias_rows}
LAYOUTS = (
    Layout('SHI-Labs NAT', (NAT_BLOCK,), KEYS, TABLES),
    Layout('SHI-Labs DiNAT-s', (SWIN_BLOCK, r'.+\.attn\.rpb'), KEYS, TABLES),
    # Not their neighbourhood attention, which has smaller tables and no such buffer.
    Layout(
        'SHI-Labs ViT',
        (
            r'layers\.\d+\.attn\.qkv\.weight',
            r'layers\.\d+\.attn\.rpb',
            r'.+\.relative_position_index',
        ),
        VIT_KEYS,
        TABLES,
    ),
)
