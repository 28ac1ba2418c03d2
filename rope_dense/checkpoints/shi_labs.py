"""SHI-Labs' key layouts: NAT and DiNAT, and DiNAT-s.

Letters: h heads, K x K tokens of a neighbourhood.
"""

from __future__ import annotations

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
    """Names, and the bias tables: [h, 2 K - 1, 2 K - 1] over offsets key - query become
    [(2 K - 1)**2, h] over offsets query - key, as in Swin."""
    tables = {key: tensor for key, tensor in weights.items() if key.endswith('.attn.rpb')}
    for key, table in tables.items():
        if table.ndim != 3:
            raise CheckpointError(
                f'{key} is {list(table.shape)}, not [heads, rows, columns]: no table of offsets'
            )
    turned = {key: table.flip(1, 2).flatten(1).T for key, table in tables.items()}
    return renamed({**weights, **turned}, KEYS)
