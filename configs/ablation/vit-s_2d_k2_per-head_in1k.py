# ViT-S, 2D RoPE, k = 2, angles of each head its own. As published: 81.00 % (Table 5).
# The paper has no formula for 2D angles of each head: the heads share out one series here.
_base_ = './vit-s_log-axial_k2_per-head_in1k.py'
rope = dict(type='AxialRoPE', theta=100.0, axes='yx', pair_layout='half')
rope.update(_delete_=True, k_rope=2, shared=False)
model = dict(backbone=dict(rope=rope))
del rope
