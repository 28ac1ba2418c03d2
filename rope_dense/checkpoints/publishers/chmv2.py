"""Key table of CHMv2 (Canopy Height Maps v2) in transformers: DINOv3 with a DPT head for depth.

Names are from transformers' code, checked with random weights against its model in
tests/models/test_depth_head.py.
"""

from __future__ import annotations

from ..keys import KeyTable

STAGE, OURS = r'head\.reassemble_stage', 'decode_head'
KEYS: KeyTable = {
    r'backbone\.(.+)': r'backbone.\1',
    STAGE + r'\.layers\.(\d)\.projection\.(.+)': OURS + r'.reassemble_blocks.projects.\1.conv.\2',
    STAGE + r'\.layers\.(\d)\.resize\.(.+)': OURS + r'.reassemble_blocks.resize_layers.\1.\2',
    STAGE + r'\.readout_projects\.(.+)': OURS + r'.reassemble_blocks.readout_projects.\1',
    r'head\.convs\.(\d)\.weight': OURS + r'.convs.\1.conv.weight',
    r'head\.fusion_layers\.(\d)\.projection\.(.+)': OURS + r'.fusion_blocks.\1.project.conv.\2',
    r'head\.fusion_layers\.(\d)\.residual_layer(\d)\.convolution(\d)\.(.+)': OURS
    + r'.fusion_blocks.\1.res_conv_unit\2.conv\3.conv.\4',
    r'head\.conv_depth\.head\.(.+)': OURS + r'.conv_depth.\1',
}
