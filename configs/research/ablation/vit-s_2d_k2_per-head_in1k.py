# ViT-S, 2D RoPE, k = 2, separate angles per head. As published: 81.00 % (Table 5).
# The paper has no formula for separate 2D angles; one series is divided among the heads here.
_base_ = './vit-s_log-axial_k2_per-head_in1k.py'
rope = dict(type='AxialRoPE', theta=100.0, axes='yx', pair_layout='half')
rope.update(_delete_=True, k_rope=2, shared=False)
model = dict(backbone=dict(rope=rope))
del rope
