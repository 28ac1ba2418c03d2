"""The key layout of SHI-Labs' plain ViT with relative position bias (``isotropic.py`` of NAT)."""

from __future__ import annotations

from .keys import KeyTable, StateDict, renamed
from .shi_labs import with_bias_rows

BLOCK = r'layers\.\d+\.attn\.qkv\.weight'
TABLE = r'layers\.(\d+)\.attn\.rpb'
KEYS: KeyTable = {
    TABLE: r'blocks.\1.attn.relative_position_bias_table',
    r'layers\.\d+\.attn\.relative_position_index': None,  # which the backbone computes
    r'layers\.(\d+)\.(.+)': r'blocks.\1.\2',
    r'head\..+': None,
}


def from_isotropic(weights: StateDict) -> StateDict:
    """Names and bias tables."""
    return renamed(with_bias_rows(weights), KEYS)
