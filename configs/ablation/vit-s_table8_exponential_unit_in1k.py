# ViT-S, exponential decay, coordinates in [-1, 1], k = 2, per head. As published: 80.7 % (Table 8).
_base_ = './vit-s_2d_k2_per-head_in1k.py'
unit = dict(type='centres', normalize='max', windows='map')
model = dict(backbone=dict(rope=dict(coordinates=unit)))
del unit
