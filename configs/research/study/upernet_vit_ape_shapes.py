# As upernet_vit_rope_mixed_shapes.py, with absolute position embedding instead.
_base_ = './upernet_vit_rope_mixed_shapes.py'

model = dict(backbone=dict(rope=None, use_ape=True))
