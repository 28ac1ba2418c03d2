# ViT-L, APE and decomposed relative position: detrex's model. The paper has 51.1 box AP (Table 1).
_base_ = './dino-vitdet_vit-l_rope-mixed-ape_8xb2-90k_coco.py'
weights = 'hf-hub:naver-ai/deit_large_patch16_LS'
model = dict(backbone=dict(rope=None, use_rel_pos=True, init_cfg=dict(checkpoint=weights)))
del weights
