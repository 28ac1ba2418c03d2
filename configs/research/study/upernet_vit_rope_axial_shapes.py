# As upernet_vit_rope_mixed_shapes.py, with RoPE-Axial.
_base_ = './upernet_vit_rope_mixed_shapes.py'

model = dict(backbone=dict(rope=dict(_delete_=True, type='AxialRoPE', theta=100.0)))
