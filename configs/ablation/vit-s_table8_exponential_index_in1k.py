# ViT-S, exponential decay, index coordinates, k = 2, per head. As published: 81.0 % (Table 8).
_base_ = './vit-s_2d_k2_per-head_in1k.py'
