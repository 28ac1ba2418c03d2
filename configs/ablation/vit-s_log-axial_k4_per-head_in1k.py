# ViT-S, log-axial RoPE, k = 4, angles of each head its own. As published: 81.41 % (Table 5).
_base_ = './vit-s_log-axial_k2_per-head_in1k.py'
model = dict(backbone=dict(rope=dict(k_rope=4, shared=False)))
