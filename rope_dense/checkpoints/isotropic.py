"""The key layout of SHI-Labs' plain ViT with relative position bias (``isotropic.py`` of NAT).

Letters: h heads, K tokens of a side of the grid.
"""

from __future__ import annotations

import re

from .errors import CheckpointError
from .keys import KeyTable, StateDict, renamed

BLOCK = r'layers\.\d+\.attn\.qkv\.weight'
TABLE = r'layers\.(\d+)\.attn\.rpb'
KEYS: KeyTable = {
    TABLE: r'blocks.\1.attn.relative_position_bias_table',
    r'layers\.\d+\.attn\.relative_position_index': None,  # which the backbone computes
    r'layers\.(\d+)\.(.+)': r'blocks.\1.\2',
    r'head\..+': None,
}


def from_isotropic(weights: StateDict) -> StateDict:
    """Names, and tables [h, 2 K - 1, 2 K - 1] over offsets key - query as rows [(2 K - 1) ** 2, h]
    over offsets query - key.

    Raises:
        CheckpointError: a table has another shape.
    """
    tables = {key: weight for key, weight in weights.items() if re.fullmatch(TABLE, key)}
    for key, table in tables.items():
        if table.ndim != 3 or table.shape[1] != table.shape[2]:
            raise CheckpointError(f'{key} is {list(table.shape)}, not [heads, offsets, offsets]')
        tables[key] = table.flip(1, 2).flatten(1).T
    return renamed({**weights, **tables}, KEYS)
