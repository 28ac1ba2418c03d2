# As upernet_swin_rope_mixed_shapes.py, with relative position bias instead.
_base_ = './upernet_swin_rope_mixed_shapes.py'

model = dict(backbone=dict(rope=None, attention=dict(type='TableBias')))
