# ViT-S, exponential decay, index coordinates, k = 1, shared. As published: 81.4 % (Table 9).
_base_ = './vit-s_2d_k1_shared_in1k.py'
