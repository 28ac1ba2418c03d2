# ViT-B, APE, the baseline. The paper reports 47.7 mIoU, 48.4 multi-scale (Table 3).
_base_ = './upernet_vit-b_rope-mixed-ape_8xb2-160k_ade20k-512x512.py'
model = dict(
    backbone=dict(
        rope=None, init_cfg=dict(checkpoint='hf-hub:naver-ai/deit_base_patch16_LS')
    )
)
