# Swin-B, RoPE-Mixed, windows of 14 tokens; the pre-training has 7. Not in the paper's tables.
_base_ = '../dino_swin-b_rope-mixed_8xb2-90k_coco.py'
model = dict(backbone=dict(window_size=14))
