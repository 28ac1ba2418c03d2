# ViT-S, log-axial RoPE, k = 8, angles shared by the heads. As published: 81.5 % (Table 10).
_base_ = './vit-s_log-axial_k8_shared_in1k.py'
