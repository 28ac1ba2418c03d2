# ViT-S, log-axial RoPE, k = 16, angles shared by the heads. As published: 81.34 % (Table 4).
_base_ = './vit-s_log-axial_k2_per-head_in1k.py'
model = dict(backbone=dict(rope=dict(k_rope=16, shared=True)))
