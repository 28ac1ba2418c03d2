"""Learning-rate factor and weight decay of every parameter, as the recipes have them.

Rows are patterns of parameter names with factors of learning rate and weight decay. A parameter
takes the first row that matches the start of its name; every row must be used.
"""

from __future__ import annotations

Rows = dict[str, tuple[float, float]]

DINO_TRANSFORMER: Rows = {
    r'(encoder|decoder)\.layers\.\d+\.norms\.': (1, 0),
    r'decoder\.norm\.|memory_trans_norm\.': (1, 0),
    r'encoder\.|decoder\.|bbox_head\.|query_embedding\.|level_embed|memory_trans_fc\.': (
        1,
        1,
    ),
    r'dn_query_generator\.label_embedding\.': (1, 1),
}
SWIN: Rows = {
    r'backbone\.layers\.\d\.blocks\.\d+\.norm[12]\.': (0.1, 0),
    r'backbone\.(layers\.\d\.downsample\.|patch_embed\.)norm\.': (0.1, 0),
    r'backbone\.norm\d\.': (0.1, 0),
    r'backbone\.layers\.\d\.blocks\.\d+\.(attn\.(qkv|proj)|mlp)\.': (0.1, 1),
    r'backbone\.layers\.\d\.downsample\.reduction\.': (0.1, 1),
    r'backbone\.patch_embed\.proj\.': (0.1, 1),
}
VITDET: Rows = {
    r'backbone\.blocks\.\d+\.norm[12]\.': (0.1, 0),
    r'backbone\.blocks\.\d+\.(attn\.(qkv|proj)|mlp)\.': (0.1, 1),
    r'backbone\.(blocks\.\d+\.gamma_[12]$|patch_embed)': (0.1, 1),
    r'neck\.0\.': (0.1, 1),  # with its channel-wise norms, as in detrex
    r'neck\.1\.convs\.\d\.gn\.': (1, 0),
    r'neck\.1\.convs\.\d\.conv\.(weight|bias)$': (1, 1),
}
SWIN_NECK: Rows = {
    r'neck\.(convs|extra_convs)\.\d\.gn\.': (1, 0),
    r'neck\.(convs|extra_convs)\.\d\.conv\.(weight|bias)$': (1, 1),
}
UPERNET_HEADS: Rows = {
    r'(neck|decode_head|auxiliary_head)\..*\.bias$': (1, 0),
    r'neck\.upsample_4x\.1\.weight|(decode|auxiliary)_head\..*\.bn\.': (1, 0),
    r'(neck|decode_head|auxiliary_head)\..*\.weight$': (1, 1),
}
MASK2FORMER_HEAD: Rows = {
    r'decode_head\.(query_embed|query_feat|level_embed|pixel_decoder\.level_encoding)\.': (
        1,
        0,
    ),
    r'decode_head\.(pixel_decoder\.encoder|transformer_decoder)\.layers\.\d+\.norms\.': (
        1,
        0,
    ),
    r'decode_head\.transformer_decoder\.post_norm\.': (1, 0),
    r'decode_head\.pixel_decoder\.\w+_convs\.\d\.gn\.': (1, 0),
    r'decode_head\.': (1, 1),
}


def upernet_vit(blocks: int, rate: float, learned: bool) -> Rows:
    """BEiT's layer-wise decay: 1 after the blocks, times `rate` for each block before.

    Frequencies decay in their learning rate with their block, and have no weight decay.
    """
    first = rate ** (blocks + 1)
    rows: Rows = {
        r'backbone\.patch_embed\.proj\.weight$': (first, 1),
        r'backbone\.patch_embed\.proj\.bias$': (first, 0),
        r'backbone\.cls_token$': (first, 1),
    }
    for block in range(blocks):
        factor, name = rate ** (blocks - block), rf'backbone\.blocks\.{block}\.'
        rows[rf'{name}(norm[12]\.|gamma_|(attn|mlp)\.\w+\.bias$)'] = (factor, 0)
        if learned:
            rows[rf'{name}attn\.rope\.freqs$'] = (factor, 0)
        rows[rf'{name}(attn|mlp)\.\w+\.weight$'] = (factor, 1)
    return rows


def group_rows(experiment: str, size: str, variant: str) -> Rows:
    """The table of a config: what its position embedding adds, backbone, neck and head."""
    learned = 'mixed' in variant or 'learned' in variant
    if experiment == 'upernet_vit':
        blocks, rate = {'b': (12, 0.75), 'l': (24, 0.9)}[size]
        backbone, position = (
            upernet_vit(blocks, rate, learned),
            (rate ** (blocks + 1), 0),
        )
    elif experiment == 'mask2former_swin':
        backbone, position = SWIN, (0.1, 0)
    else:  # detrex exempts norms only
        backbone, position = VITDET if experiment == 'dino_vitdet' else SWIN, (0.1, 1)
    rows: Rows = {}
    if learned and experiment != 'upernet_vit':  # no decay, as in the pre-training
        rows[r'backbone\.(layers\.\d\.)?blocks\.\d+\.attn\.rope\.freqs$'] = (
            position[0],
            0,
        )
    if 'ape' in variant:
        rows[r'backbone\.pos_embed$'] = position
    if 'rpb' in variant:
        rows[r'backbone\..+\.relative_position_bias_table$'] = position
    if (experiment, variant) == ('dino_vitdet', 'ape'):
        rows[r'backbone\.blocks\.\d+\.attn\.rel_pos_[hw]$'] = position
    return rows | backbone | HEADS[experiment]


HEADS = {
    'dino_vitdet': DINO_TRANSFORMER,
    'dino_swin': SWIN_NECK | DINO_TRANSFORMER,
    'upernet_vit': UPERNET_HEADS,
    'mask2former_swin': MASK2FORMER_HEAD,
}
