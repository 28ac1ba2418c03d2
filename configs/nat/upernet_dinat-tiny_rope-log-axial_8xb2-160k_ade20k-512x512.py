# UperNet, DiNAT-Tiny, log-axial RoPE and no bias: no result is known.
# Such weights are not published: it starts from random ones, or from your own (init_cfg).
_base_ = './upernet_dinat-tiny_rpb_8xb2-160k_ade20k-512x512.py'
rope = dict(_delete_=True, type='LogAxialRoPE', k_rope=2)
model = dict(backbone=dict(rope=rope, use_rpb=False, init_cfg=None))
del rope
