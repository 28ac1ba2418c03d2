# As upernet_vit_rope_mixed_shapes.py, with additional absolute position embedding.
_base_ = './upernet_vit_rope_mixed_shapes.py'

model = dict(backbone=dict(use_ape=True))
