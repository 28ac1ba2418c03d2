# ViT-B, RoPE-Axial with learned frequencies; in the paper for classification only, no result.
# No such weights are published; it starts from the axial ones.
_base_ = './upernet_vit-b_rope-axial_8xb2-160k_ade20k-512x512.py'
model = dict(backbone=dict(rope=dict(learned=True)))
