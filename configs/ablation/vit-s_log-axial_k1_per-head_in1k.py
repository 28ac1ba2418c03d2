# ViT-S, log-axial RoPE, k = 1, angles of each head its own. As published: 80.91 % (Table 5).
_base_ = './vit-s_log-axial_k2_per-head_in1k.py'
model = dict(backbone=dict(rope=dict(k_rope=1, shared=False)))
