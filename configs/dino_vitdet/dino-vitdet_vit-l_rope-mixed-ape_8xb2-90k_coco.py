# ViT-L, RoPE-Mixed with APE. The paper reports 52.8 box AP (Table 1).
_base_ = './dino-vitdet_vit-l_rope-mixed_8xb2-90k_coco.py'
model = dict(
    backbone=dict(
        use_ape=True,
        init_cfg=dict(
            checkpoint='hf-hub:naver-ai/rope_mixed_ape_deit_large_patch16_LS'
        ),
    )
)
