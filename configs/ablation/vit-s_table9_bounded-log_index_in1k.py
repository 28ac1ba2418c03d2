# ViT-S, bounded log, index coordinates, k = 1, shared. As published: 81.0 % (Table 9).
_base_ = './vit-s_log-axial_k1_shared_in1k.py'
model = dict(backbone=dict(rope=dict(coordinates=dict(type='index'))))
