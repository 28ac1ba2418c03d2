# ViT-S, bounded log, coordinates in [-1, 1], k = 2, per head. As published: 81.4 % (Table 8).
_base_ = './vit-s_log-axial_k2_per-head_in1k.py'
