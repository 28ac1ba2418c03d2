"""Key layouts of DEIMv2's and EdgeCrafter's (ECDet, ECSeg) detectors and of their small ViTs.

Names are from the published code (EdgeCrafter: Apache-2.0) and, for DEIMv2, from
transformers' conversion of its files. Rows have both names, so that tables of both directions
come from them: '#' is a number, '*' the rest of a key, braces as in ``KeyTable``. A detector's
backbone keeps its names after ``backbone.``; it has a layout of its own, below or in dinov3.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..keys import VIT_BLOCK, KeyTable, Layout
from .dinov3 import PERIODS

Rows = list[tuple[str, str]]  # published, ours


def key_table(rows: Iterable[tuple[str, str]]) -> KeyTable:
    """A table of keys from the first name of each row to the second."""
    return {pattern(old): replacement(new) for old, new in rows}


def pattern(name: str) -> str:
    """The regular expression of a name."""
    return name.replace('.', r'\.').replace('#', r'(\d+)').replace('*', '(.+)')


def replacement(name: str) -> str:
    """The name with references to what '#' and '*' stand for."""
    parts, count = '', 0
    for letter in name:
        if letter in '#*':
            count += 1
        parts += rf'\{count}' if letter in '#*' else letter
    return parts


def conv(theirs: str, ours: str) -> Rows:
    """A convolution and its norm."""
    return [(f'{theirs}.conv.*', f'{ours}.conv.*'), (f'{theirs}.norm.*', f'{ours}.bn.*')]


def mlp(theirs: str, ours: str, layers: int = 3) -> Rows:
    """Linear layers, with activations between in ours."""
    return [(f'{theirs}.layers.{i}.*', f'{ours}.{2 * i}.*') for i in range(layers)]


def csp(theirs: str, ours: str) -> Rows:
    """A part of a block of the encoder."""
    return [
        *conv(f'{theirs}.conv1', f'{ours}.split'),
        *conv(f'{theirs}.bottlenecks.#.conv1', f'{ours}.blocks.#.conv3x3'),
        *conv(f'{theirs}.bottlenecks.#.conv2', f'{ours}.blocks.#.conv1x1'),
    ]


LAYER = 'bbox_head.decoder.layers.#'
PATHS = (('fpn_blocks', 'top_down'), ('pan_blocks', 'bottom_up'))

# ---------------------------------------------------------------- the authors'

SHARED: Rows = [
    *conv('encoder.input_proj.#', 'encoder.projections.#'),
    ('encoder.encoder.0.layers.0.self_attn.in_proj_*', 'encoder.attention.self_attn.in_proj.*'),
    ('encoder.encoder.0.layers.0.*', 'encoder.attention.*'),
    *conv('encoder.lateral_convs.#', 'encoder.laterals.#'),
    *conv('encoder.downsample_convs.#.0.cv1', 'encoder.downs.#.0'),
    *conv('encoder.downsample_convs.#.0.cv2', 'encoder.downs.#.1'),
    *(
        row
        for theirs, ours in PATHS
        for row in (
            *conv(f'encoder.{theirs}.#.cv1', f'encoder.{ours}.#.split'),
            *conv(f'encoder.{theirs}.#.cv4', f'encoder.{ours}.#.merge'),
            *csp(f'encoder.{theirs}.#.cv2.0', f'encoder.{ours}.#.csp.0'),
            *csp(f'encoder.{theirs}.#.cv3.0', f'encoder.{ours}.#.csp.1'),
        )
    ),
    ('decoder.denoising_class_embed.*', 'bbox_head.denoising.labels.*'),
    ('decoder.enc_score_head.*', 'bbox_head.selection.cls.*'),
    *mlp('decoder.enc_bbox_head', 'bbox_head.selection.reg'),
    *mlp('decoder.query_pos_head', 'bbox_head.decoder.query_pos'),
    *mlp('decoder.pre_bbox_head', 'bbox_head.decoder.pre_bbox'),
    *mlp('decoder.dec_bbox_head.#', 'bbox_head.decoder.reg_branches.#'),
    *mlp('decoder.decoder.lqe_layers.#.reg_conf', 'bbox_head.decoder.quality.#', 2),
    ('decoder.dec_score_head.*', 'bbox_head.decoder.cls_branches.*'),
    ('decoder.decoder.layers.#.self_attn.in_proj_*', f'{LAYER}.self_attn.in_proj.*'),
    ('decoder.decoder.layers.#.self_attn.out_proj.*', f'{LAYER}.self_attn.out_proj.*'),
    ('decoder.decoder.layers.#.cross_attn.*', f'{LAYER}.cross_attn.*'),
    ('decoder.decoder.layers.#.gateway.gate.*', f'{LAYER}.gateway.gate.*'),
]
# Dropped: what the code computes by itself.
COMPUTED: KeyTable = {
    r'decoder\.(decoder\.)?(up|reg_scale)': None,  # settings, which are compared
    r'decoder\.(anchors|valid_mask)': None,
    r'.+\.num_points_scale': None,
}
DEIMV2: Rows = [
    ('backbone.sta.stem.0.*', 'neck.stem.conv.*'),
    ('backbone.sta.stem.1.*', 'neck.stem.bn.*'),
    *(
        row
        for index, first in enumerate((0, 1, 1))
        for row in (
            (f'backbone.sta.conv{index + 2}.{first}.*', f'neck.downs.{index}.conv.*'),
            (f'backbone.sta.conv{index + 2}.{first + 1}.*', f'neck.downs.{index}.bn.*'),
        )
    ),
    ('backbone.convs.#.*', 'neck.fusions.#.conv.*'),
    ('backbone.norms.#.*', 'neck.fusions.#.bn.*'),
    *SHARED,
    ('decoder.decoder.layers.#.gateway.norm.scale', f'{LAYER}.gateway.norm.weight'),
    ('decoder.decoder.layers.#.norm1.scale', f'{LAYER}.norm1.weight'),
    ('decoder.decoder.layers.#.norm3.scale', f'{LAYER}.norm2.weight'),
    ('decoder.decoder.layers.#.swish_ffn.w12.*', f'{LAYER}.ffn.in_proj.*'),
    ('decoder.decoder.layers.#.swish_ffn.w3.*', f'{LAYER}.ffn.out_proj.*'),
]
MASK, MASK_HEAD = 'decoder.decoder.segmentation_head', 'bbox_head.mask_head'
EDGECRAFTER: Rows = [
    *conv('backbone.projector.#', 'neck.projections.#'),
    *SHARED,
    ('decoder.decoder.layers.#.gateway.norm.*', f'{LAYER}.gateway.norm.*'),
    ('decoder.decoder.layers.#.norm1.*', f'{LAYER}.norm1.*'),
    ('decoder.decoder.layers.#.norm2.*', f'{LAYER}.norm2.*'),
    ('decoder.decoder.layers.#.linear1.*', f'{LAYER}.ffn.in_proj.*'),
    ('decoder.decoder.layers.#.linear2.*', f'{LAYER}.ffn.out_proj.*'),
    (f'{MASK}.blocks.#.dwconv.*', f'{MASK_HEAD}.blocks.#.conv.*'),
    (f'{MASK}.blocks.#.norm.*', f'{MASK_HEAD}.blocks.#.norm.*'),
    (f'{MASK}.blocks.#.pwconv1.*', f'{MASK_HEAD}.blocks.#.linear.*'),
    (f'{MASK}.spatial_features_proj.*', f'{MASK_HEAD}.project.*'),
    (f'{MASK}.query_features_block.norm_in.*', f'{MASK_HEAD}.query_norm.*'),
    (f'{MASK}.query_features_block.layers.*', f'{MASK_HEAD}.query_mlp.*'),
    (f'{MASK}.query_features_proj.*', f'{MASK_HEAD}.query_project.*'),
    (f'{MASK}.bias', f'{MASK_HEAD}.bias'),
]

# ---------------------------------------------------------------- transformers'

STA, AIFI = 'model.conv_encoder.spatial_tuning_adapter', 'model.encoder.aifi.0.layers.0'
QKV = 'self_attn.{q_proj,k_proj,v_proj}'
TRANSFORMERS: Rows = [
    *conv(f'{STA}.stem_conv', 'neck.stem'),
    *(row for i in range(3) for row in conv(f'{STA}.conv{i + 2}', f'neck.downs.{i}')),
    *conv('model.conv_encoder.fusion_proj.#', 'neck.fusions.#'),
    (f'{AIFI}.{QKV}.weight', 'encoder.attention.self_attn.in_proj.weight'),
    (f'{AIFI}.{QKV}.bias', 'encoder.attention.self_attn.in_proj.bias'),
    (f'{AIFI}.self_attn.o_proj.*', 'encoder.attention.self_attn.out_proj.*'),
    (f'{AIFI}.self_attn_layer_norm.*', 'encoder.attention.norm1.*'),
    (f'{AIFI}.mlp.layers.0.*', 'encoder.attention.linear1.*'),
    (f'{AIFI}.mlp.layers.1.*', 'encoder.attention.linear2.*'),
    (f'{AIFI}.final_layer_norm.*', 'encoder.attention.norm2.*'),
    *conv('model.encoder.lateral_convs.#', 'encoder.laterals.#'),
    *conv('model.encoder.downsample_convs.#.conv1', 'encoder.downs.#.0'),
    *conv('model.encoder.downsample_convs.#.conv2', 'encoder.downs.#.1'),
    *(
        row
        for theirs, ours in PATHS
        for row in (
            *conv(f'model.encoder.{theirs}.#.conv1', f'encoder.{ours}.#.split'),
            *conv(f'model.encoder.{theirs}.#.conv2', f'encoder.{ours}.#.merge'),
            *csp(f'model.encoder.{theirs}.#.csp_rep1', f'encoder.{ours}.#.csp.0'),
            *csp(f'model.encoder.{theirs}.#.csp_rep2', f'encoder.{ours}.#.csp.1'),
        )
    ),
    ('model.denoising_class_embed.*', 'bbox_head.denoising.labels.*'),
    ('model.enc_score_head.*', 'bbox_head.selection.cls.*'),
    *mlp('model.enc_bbox_head', 'bbox_head.selection.reg'),
    *mlp('model.decoder.query_pos_head', 'bbox_head.decoder.query_pos'),
    *mlp('model.decoder.pre_bbox_head', 'bbox_head.decoder.pre_bbox'),
    *mlp('model.decoder.bbox_embed.#', 'bbox_head.decoder.reg_branches.#'),
    *mlp('model.decoder.lqe_layers.#.reg_conf', 'bbox_head.decoder.quality.#', 2),
    ('model.decoder.class_embed.*', 'bbox_head.decoder.cls_branches.*'),
    (f'model.decoder.layers.#.{QKV}.weight', f'{LAYER}.self_attn.in_proj.weight'),
    (f'model.decoder.layers.#.{QKV}.bias', f'{LAYER}.self_attn.in_proj.bias'),
    ('model.decoder.layers.#.self_attn.o_proj.*', f'{LAYER}.self_attn.out_proj.*'),
    ('model.decoder.layers.#.self_attn_layer_norm.*', f'{LAYER}.norm1.*'),
    ('model.decoder.layers.#.encoder_attn.*', f'{LAYER}.cross_attn.*'),
    ('model.decoder.layers.#.gateway.*', f'{LAYER}.gateway.*'),
    ('model.decoder.layers.#.mlp.{gate_proj,up_proj}.weight', f'{LAYER}.ffn.in_proj.weight'),
    ('model.decoder.layers.#.mlp.{gate_proj,up_proj}.bias', f'{LAYER}.ffn.in_proj.bias'),
    ('model.decoder.layers.#.mlp.down_proj.*', f'{LAYER}.ffn.out_proj.*'),
    ('model.decoder.layers.#.final_layer_norm.*', f'{LAYER}.norm2.*'),
]
TRANSFORMERS_COMPUTED: KeyTable = {
    r'model\.decoder\.(up|reg_scale)': None,
    r'(class|bbox)_embed\..+': None,  # weights of the decoder once more
    r'model\.enc_output\..+': None,  # not in the source: an identity and a norm in its files
    r'.+\.num_points_scale': None,
}

# ---------------------------------------------------------------- ViTs alone

ECVIT_KEYS: KeyTable = {
    r'register_token': 'reg_token',
    r'(patch_embed\.convs\.\d\.)norm\.(.+)': r'\1bn.\2',
    r'rope_embed\.periods': PERIODS,
}
LAYOUTS = (
    Layout('EdgeCrafter ECViT', (VIT_BLOCK, 'register_token'), ECVIT_KEYS),
    Layout(
        'DEIMv2 ViT',
        (VIT_BLOCK, r'rope_embed\.periods'),
        {r'rope_embed\.periods': PERIODS},
        test=lambda weights: not any(key.endswith('gamma') for key in weights),
    ),
)
