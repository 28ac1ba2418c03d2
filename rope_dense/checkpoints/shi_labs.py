"""SHI-Labs' key layouts: NAT and DiNAT, and DiNAT-s.

Letters: h heads, K x K tokens of a neighbourhood.
"""

from __future__ import annotations

import re

from .errors import CheckpointError
from .keys import KeyTable, StateDict, renamed

NAT_BLOCK = r'levels\.\d+\.blocks\.\d+\.attn\.qkv\.weight'
TABLE = r'.+\.attn\.rpb'
BLOCK = r'(?:levels|layers)\.(\d+\.blocks\.\d+\.)'
KEYS: KeyTable = {
    rf'{BLOCK}gamma([12])': r'layers.\1gamma_\2',
    rf'{BLOCK}attn\.rpb': r'layers.\1attn.relative_position_bias_table',
    r'levels\.(.+)': r'layers.\1',
    r'head\..+': None,
}


def from_shi_labs(weights: StateDict) -> StateDict:
    """Names and bias tables."""
    return renamed(with_bias_rows(weights), KEYS)


def with_bias_rows(weights: StateDict) -> StateDict:
    """With bias tables [h, 2 K - 1, 2 K - 1] over offsets key - query as rows [(2 K - 1) ** 2, h]
    over offsets query - key.

    Raises:
        CheckpointError: a table has another shape.
    """
    tables = {key: weight for key, weight in weights.items() if re.fullmatch(TABLE, key)}
    for key, table in tables.items():
        if table.ndim != 3 or table.shape[1] != table.shape[2]:
            raise CheckpointError(f'{key} is {list(table.shape)}, not [heads, offsets, offsets]')
        tables[key] = table.flip(1, 2).flatten(1).T
    return {**weights, **tables}
