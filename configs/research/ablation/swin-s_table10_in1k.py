# Swin-S, log-axial RoPE, k = 8, angles shared by the heads. As published: 82.8 % (Table 10).
_base_ = './vit-s_log-axial_k2_per-head_in1k.py'
rope = dict(type='LogAxialRoPE', k_rope=8, shared=True)
backbone = dict(_delete_=True, type='RoPESwin', arch='small', rope=rope)
backbone.update(out_indices=(3,), drop_path_rate=0.3, shift_single_window=False)
model = dict(backbone=backbone)
del rope, backbone
