# ViT-S, bounded log, index coordinates, k = 2, per head. As published: 81.2 % (Table 8).
_base_ = './vit-s_log-axial_k2_per-head_in1k.py'
model = dict(backbone=dict(rope=dict(coordinates=dict(type='index'))))
