# ViT-S, exponential decay, coordinates in [-1, 1], k = 1, shared. As published: 81.0 % (Table 9).
_base_ = './vit-s_2d_k1_shared_in1k.py'
unit = dict(type='centres', normalize='max', windows='map')
model = dict(backbone=dict(rope=dict(coordinates=unit)))
del unit
