# Swin-S, RoPE-Mixed, windows of 12 tokens; the pre-training has 7. Not in the paper's tables.
_base_ = '../dino_swin-s_rope-mixed_8xb2-90k_coco.py'
model = dict(backbone=dict(window_size=12))
