# ViT-L, RoPE-Axial with APE. The paper reports 52.5 box AP (Table 1).
_base_ = './dino-vitdet_vit-l_rope-mixed_8xb2-90k_coco.py'
weights = 'hf-hub:naver-ai/rope_axial_ape_deit_large_patch16_LS'
backbone = dict(use_ape=True, rope=dict(type='AxialRoPE', theta=100.0))
model = dict(backbone=dict(**backbone, init_cfg=dict(checkpoint=weights)))
del weights, backbone
