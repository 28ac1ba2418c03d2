# ViT-S, 2D RoPE, k = 16, angles shared by the heads. As published: 80.77 % (Table 4).
# 6 heads of 64 channels: 2 channels of 32 do not make a pair for each axis.
_base_ = './vit-s_log-axial_k2_per-head_in1k.py'
rope = dict(type='AxialRoPE', theta=100.0, axes='yx', pair_layout='half')
rope.update(_delete_=True, k_rope=16, shared=True)
model = dict(backbone=dict(arch=dict(num_heads=6), rope=rope))
del rope
