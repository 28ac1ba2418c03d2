"""SHI-Labs' key layouts: NAT, DiNAT, DiNAT-s, and a plain ViT with relative position bias.

The plain ViT is from ``isotropic.py`` in NAT's repository.

Letters: h heads, K x K tokens of a neighbourhood.
"""

from torch import Tensor

from ..keys import SWIN_BLOCK, Layout, Rows, rows_within


def bias_rows(table: Tensor) -> Tensor:
    """A bias table [h, 2 K - 1, 2 K - 1] as rows [(2 K - 1) ** 2, h].

    The table is over offsets key - query, the rows are over offsets query - key.
    """
    return table.flip(1, 2).flatten(1).T


TABLE = 'attn.relative_position_bias_table'
BLOCK: Rows = [('gamma#', 'gamma_#'), ('attn.rpb', TABLE)]
ROWS: Rows = [
    *rows_within('levels.#.blocks.#', 'layers.#.blocks.#', *BLOCK),
    *rows_within('layers.#.blocks.#', 'layers.#.blocks.#', *BLOCK),
    ('levels.*', 'layers.*'),
    ('head.*', None),
]
VIT: Rows = [
    ('layers.#.attn.rpb', f'blocks.#.{TABLE}'),
    ('layers.#.attn.relative_position_index', None),  # which the backbone computes
    ('layers.#.*', 'blocks.#.*'),
    ('head.*', None),
]
TABLES = {'*.attn.rpb': bias_rows}
LAYOUTS = (
    Layout('SHI-Labs NAT', ('levels.#.blocks.#.attn.qkv.weight',), ROWS, TABLES),
    Layout('SHI-Labs DiNAT-s', (SWIN_BLOCK, '*.attn.rpb'), ROWS, TABLES),
    # Not their neighbourhood attention, which has smaller tables and no such buffer.
    Layout(
        'SHI-Labs ViT',
        ('layers.#.attn.qkv.weight', 'layers.#.attn.rpb', '*.relative_position_index'),
        VIT,
        TABLES,
    ),
)
