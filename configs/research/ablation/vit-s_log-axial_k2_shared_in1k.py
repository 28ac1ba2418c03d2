# ViT-S, log-axial RoPE, k = 2, angles shared by the heads. As published: 81.43 % (Table 4).
_base_ = './vit-s_log-axial_k2_per-head_in1k.py'
model = dict(backbone=dict(rope=dict(k_rope=2, shared=True)))
