# ViT-B, RoPE-Axial with learned frequencies; in the paper for classification only, no result.
# No such weights are published; it starts from the axial ones.
_base_ = './dino-vitdet_vit-b_rope-axial_8xb2-90k_coco.py'
model = dict(backbone=dict(rope=dict(learned=True)))
