"""Key layouts of DEIMv2's and EdgeCrafter's (ECDet, ECSeg) detectors and of their small ViTs.

Names are from the published code (EdgeCrafter: Apache-2.0) and, for DEIMv2, from
transformers' conversion of its files. Rows have both names, so that tables of both directions
come from them. A detector's
backbone keeps its names after ``backbone.``; it has a layout of its own, below or in dinov3.py.
"""

from ..keys import VIT_BLOCK, Layout, Row, Rows, rows_within
from .dinov3 import PERIODS


def conv_rows(theirs: str, ours: str) -> Rows:
    """A convolution and its norm."""
    return rows_within(theirs, ours, ('conv.*', 'conv.*'), ('norm.*', 'bn.*'))


def mlp_rows(theirs: str, ours: str) -> Row:
    """Two or three linear layers, with activations between in ours."""
    return theirs + '.layers.{0,1,2}.*', ours + '.{0,2,4}.*'


def csp_rows(theirs: str, ours: str) -> Rows:
    """A part of a block of the encoder."""
    return [
        *conv_rows(f'{theirs}.conv1', f'{ours}.split'),
        *conv_rows(f'{theirs}.bottlenecks.#.conv1', f'{ours}.blocks.#.conv3x3'),
        *conv_rows(f'{theirs}.bottlenecks.#.conv2', f'{ours}.blocks.#.conv1x1'),
    ]


LAYER, AUTHORS_LAYER = 'bbox_head.decoder.layers.#', 'decoder.decoder.layers.#'
PATHS, OUR_PATHS = '{fpn,pan}_blocks.#', 'encoder.{top_down,bottom_up}.#'

# ---------------------------------------------------------------- the authors'

SHARED: Rows = [
    *conv_rows('encoder.input_proj.#', 'encoder.projections.#'),
    (
        'encoder.encoder.0.layers.0.self_attn.in_proj_*',
        'encoder.attention.self_attn.in_proj.*',
    ),
    ('encoder.encoder.0.layers.0.*', 'encoder.attention.*'),
    *conv_rows('encoder.lateral_convs.#', 'encoder.laterals.#'),
    *conv_rows('encoder.downsample_convs.#.0.{cv1,cv2}', 'encoder.downs.#.{0,1}'),
    *conv_rows(f'encoder.{PATHS}.cv1', f'{OUR_PATHS}.split'),
    *conv_rows(f'encoder.{PATHS}.cv4', f'{OUR_PATHS}.merge'),
    *csp_rows(f'encoder.{PATHS}.cv2.0', f'{OUR_PATHS}.csp.0'),
    *csp_rows(f'encoder.{PATHS}.cv3.0', f'{OUR_PATHS}.csp.1'),
    ('decoder.denoising_class_embed.*', 'bbox_head.denoising.labels.*'),
    ('decoder.enc_score_head.*', 'bbox_head.selection.cls.*'),
    mlp_rows('decoder.enc_bbox_head', 'bbox_head.selection.reg'),
    mlp_rows('decoder.query_pos_head', 'bbox_head.decoder.query_pos'),
    mlp_rows('decoder.pre_bbox_head', 'bbox_head.decoder.pre_bbox'),
    mlp_rows('decoder.dec_bbox_head.#', 'bbox_head.decoder.reg_branches.#'),
    mlp_rows('decoder.decoder.lqe_layers.#.reg_conf', 'bbox_head.decoder.quality.#'),
    ('decoder.dec_score_head.*', 'bbox_head.decoder.cls_branches.*'),
    *rows_within(
        AUTHORS_LAYER,
        LAYER,
        ('self_attn.in_proj_*', 'self_attn.in_proj.*'),
        ('self_attn.out_proj.*', 'self_attn.out_proj.*'),
        ('cross_attn.*', 'cross_attn.*'),
        ('gateway.gate.*', 'gateway.gate.*'),
    ),
]
# Dropped: what the code computes by itself.
COMPUTED: Rows = [
    # Two of them are settings, which are compared.
    ('decoder.{up,reg_scale,anchors,valid_mask}', None),
    ('decoder.decoder.{up,reg_scale}', None),
    ('*.num_points_scale', None),
]
DEIMV2: Rows = [
    ('backbone.sta.stem.{0,1}.*', 'neck.stem.{conv,bn}.*'),
    ('backbone.sta.conv2.{0,1}.*', 'neck.downs.0.{conv,bn}.*'),
    ('backbone.sta.conv3.{1,2}.*', 'neck.downs.1.{conv,bn}.*'),
    ('backbone.sta.conv4.{1,2}.*', 'neck.downs.2.{conv,bn}.*'),
    ('backbone.{convs,norms}.#.*', 'neck.fusions.#.{conv,bn}.*'),
    *SHARED,
    *rows_within(
        AUTHORS_LAYER,
        LAYER,
        ('{gateway.norm,norm1,norm3}.scale', '{gateway.norm,norm1,norm2}.weight'),
        ('swish_ffn.{w12,w3}.*', 'ffn.{in_proj,out_proj}.*'),
    ),
]
EDGECRAFTER: Rows = [
    *conv_rows('backbone.projector.#', 'neck.projections.#'),
    *SHARED,
    *rows_within(
        AUTHORS_LAYER,
        LAYER,
        ('{gateway.norm,norm1,norm2}.*', '{gateway.norm,norm1,norm2}.*'),
        ('{linear1,linear2}.*', 'ffn.{in_proj,out_proj}.*'),
    ),
    *rows_within(
        'decoder.decoder.segmentation_head',
        'bbox_head.mask_head',
        ('blocks.#.{dwconv,norm,pwconv1}.*', 'blocks.#.{conv,norm,linear}.*'),
        ('spatial_features_proj.*', 'project.*'),
        ('query_features_block.{norm_in,layers}.*', '{query_norm,query_mlp}.*'),
        ('query_features_proj.*', 'query_project.*'),
        ('bias', 'bias'),
    ),
]

# ---------------------------------------------------------------- transformers'

STA = 'model.conv_encoder.spatial_tuning_adapter'
ATTENTION: Rows = [('{q,k,v}_proj.*', 'in_proj.*'), ('o_proj.*', 'out_proj.*')]
TRANSFORMERS: Rows = [
    *conv_rows(f'{STA}.stem_conv', 'neck.stem'),
    *conv_rows(STA + '.conv{2,3,4}', 'neck.downs.{0,1,2}'),
    *conv_rows('model.conv_encoder.fusion_proj.#', 'neck.fusions.#'),
    *rows_within(
        'model.encoder.aifi.0.layers.0',
        'encoder.attention',
        *rows_within('self_attn', 'self_attn', *ATTENTION),
        ('{self_attn,final}_layer_norm.*', '{norm1,norm2}.*'),
        ('mlp.layers.{0,1}.*', '{linear1,linear2}.*'),
    ),
    *conv_rows('model.encoder.lateral_convs.#', 'encoder.laterals.#'),
    *conv_rows(
        'model.encoder.downsample_convs.#.{conv1,conv2}', 'encoder.downs.#.{0,1}'
    ),
    *conv_rows(f'model.encoder.{PATHS}.conv1', f'{OUR_PATHS}.split'),
    *conv_rows(f'model.encoder.{PATHS}.conv2', f'{OUR_PATHS}.merge'),
    *csp_rows(f'model.encoder.{PATHS}.csp_rep1', f'{OUR_PATHS}.csp.0'),
    *csp_rows(f'model.encoder.{PATHS}.csp_rep2', f'{OUR_PATHS}.csp.1'),
    ('model.denoising_class_embed.*', 'bbox_head.denoising.labels.*'),
    ('model.enc_score_head.*', 'bbox_head.selection.cls.*'),
    mlp_rows('model.enc_bbox_head', 'bbox_head.selection.reg'),
    mlp_rows('model.decoder.query_pos_head', 'bbox_head.decoder.query_pos'),
    mlp_rows('model.decoder.pre_bbox_head', 'bbox_head.decoder.pre_bbox'),
    mlp_rows('model.decoder.bbox_embed.#', 'bbox_head.decoder.reg_branches.#'),
    mlp_rows('model.decoder.lqe_layers.#.reg_conf', 'bbox_head.decoder.quality.#'),
    ('model.decoder.class_embed.*', 'bbox_head.decoder.cls_branches.*'),
    *rows_within(
        'model.decoder.layers.#',
        LAYER,
        *rows_within('self_attn', 'self_attn', *ATTENTION),
        ('{self_attn,final}_layer_norm.*', '{norm1,norm2}.*'),
        ('encoder_attn.*', 'cross_attn.*'),
        ('gateway.*', 'gateway.*'),
        ('mlp.{gate,up}_proj.*', 'ffn.in_proj.*'),
        ('mlp.down_proj.*', 'ffn.out_proj.*'),
    ),
]
TRANSFORMERS_COMPUTED: Rows = [
    ('model.decoder.{up,reg_scale}', None),
    ('{class,bbox}_embed.*', None),  # weights of the decoder once more
    # Not in the source: an identity and a norm in its files.
    ('model.enc_output.*', None),
    ('*.num_points_scale', None),
]

# ---------------------------------------------------------------- ViTs alone

VIT: Rows = [('rope_embed.periods', PERIODS)]
ECVIT: Rows = [
    ('register_token', 'reg_token'),
    ('patch_embed.convs.#.norm.*', 'patch_embed.convs.#.bn.*'),
    *VIT,
]
LAYOUTS = (
    Layout('EdgeCrafter ECViT', (VIT_BLOCK, 'register_token'), ECVIT),
    Layout(
        'DEIMv2 ViT',
        (VIT_BLOCK, 'rope_embed.periods'),
        VIT,
        test=lambda weights: not any(key.endswith('gamma') for key in weights),
    ),
)
