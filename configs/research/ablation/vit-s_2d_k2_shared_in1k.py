# ViT-S, 2D RoPE, k = 2, angles shared by the heads. As published: 81.37 % (Table 4).
_base_ = './vit-s_log-axial_k2_per-head_in1k.py'
rope = dict(type='AxialRoPE', theta=100.0, axes='yx', pair_layout='half')
rope.update(_delete_=True, k_rope=2, shared=True)
model = dict(backbone=dict(rope=rope))
del rope
