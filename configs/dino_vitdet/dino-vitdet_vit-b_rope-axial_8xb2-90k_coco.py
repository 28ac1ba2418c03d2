# ViT-B, RoPE-Axial. The paper reports 50.8 box AP (Table 1).
_base_ = './dino-vitdet_vit-b_rope-mixed_8xb2-90k_coco.py'
model = dict(
    backbone=dict(
        rope=dict(type='AxialRoPE', theta=100.0),
        init_cfg=dict(checkpoint='hf-hub:naver-ai/rope_axial_deit_base_patch16_LS'),
    )
)
