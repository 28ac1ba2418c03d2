# ViT-B, APE and decomposed relative position: detrex's model. The paper has 49.4 box AP (Table 1).
_base_ = './dino-vitdet_vit-b_rope-mixed-ape_8xb2-90k_coco.py'
weights = dict(checkpoint='hf-hub:naver-ai/deit_base_patch16_LS')
backbone = dict(rope=None, attention=dict(type='DecomposedBias'), init_cfg=weights)
model = dict(backbone=backbone)
del weights, backbone
