# ViT-S, bounded log, coordinates in [-1, 1], k = 1, shared. As published: 80.9 % (Table 9).
_base_ = './vit-s_log-axial_k1_shared_in1k.py'
