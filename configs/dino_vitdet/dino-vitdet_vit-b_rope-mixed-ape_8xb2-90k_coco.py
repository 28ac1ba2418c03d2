# ViT-B, RoPE-Mixed with APE. The paper reports 51.1 box AP (Table 1).
_base_ = './dino-vitdet_vit-b_rope-mixed_8xb2-90k_coco.py'
model = dict(
    backbone=dict(
        use_ape=True,
        init_cfg=dict(checkpoint='hf-hub:naver-ai/rope_mixed_ape_deit_base_patch16_LS'),
    )
)
