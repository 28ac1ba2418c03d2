# ViT-L, APE and decomposed relative position: detrex's model. The paper has 51.1 box AP (Table 1).
_base_ = './dino-vitdet_vit-l_rope-mixed_8xb2-90k_coco.py'
weights = dict(checkpoint='hf-hub:naver-ai/deit_large_patch16_LS')
backbone = dict(
    rope=None, use_ape=True, attention=dict(type='DecomposedBias'), init_cfg=weights
)
model = dict(backbone=backbone)
del weights, backbone
