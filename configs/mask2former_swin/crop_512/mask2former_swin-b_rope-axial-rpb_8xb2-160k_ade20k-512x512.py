# Swin-B, RoPE-Axial with relative position bias. Crops of 512.
# Such weights are not published: the backbone starts from random ones, or from your own (init_cfg).
_base_ = './mask2former_swin-b_rope-mixed_8xb2-160k_ade20k-512x512.py'
model = dict(backbone=dict(rope=dict(type='AxialRoPE', theta=50.0), use_rpb=True, init_cfg=None))
