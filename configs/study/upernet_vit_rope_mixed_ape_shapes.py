# As upernet_vit_rope_mixed_shapes.py, with absolute position embedding too.
_base_ = './upernet_vit_rope_mixed_shapes.py'

model = dict(backbone=dict(use_ape=True))
