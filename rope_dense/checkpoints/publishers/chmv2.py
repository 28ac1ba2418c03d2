"""Key table of CHMv2 (Canopy Height Maps v2) in transformers: DINOv3 with a DPT head for depth.

Names are from transformers' code, checked with random weights against its model in
tests/models/test_depth_head.py.
"""

from ..keys import Rows, rows_within

CHMV2: Rows = [
    ('backbone.*', 'backbone.*'),
    *rows_within(
        'head',
        'decode_head',
        ('reassemble_stage.layers.#.projection.*', 'reassemble_blocks.projects.#.conv.*'),
        ('reassemble_stage.layers.#.resize.*', 'reassemble_blocks.resize_layers.#.*'),
        ('reassemble_stage.readout_projects.*', 'reassemble_blocks.readout_projects.*'),
        ('convs.#.weight', 'convs.#.conv.weight'),
        ('fusion_layers.#.projection.*', 'fusion_blocks.#.project.conv.*'),
        (
            'fusion_layers.#.residual_layer#.convolution#.*',
            'fusion_blocks.#.res_conv_unit#.conv#.conv.*',
        ),
        ('conv_depth.head.*', 'conv_depth.*'),
    ),
]
