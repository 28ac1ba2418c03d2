# ViT-S, log-axial RoPE, k = 16, angles shared by the heads. As published: 81.34 % (Table 4).
# 6 heads of 64 channels: 2 channels of 32 do not make a pair for each axis.
_base_ = './vit-s_log-axial_k2_per-head_in1k.py'
model = dict(backbone=dict(arch=dict(num_heads=6), rope=dict(k_rope=16, shared=True)))
