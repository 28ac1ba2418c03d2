# ViT-B, RoPE-Mixed with APE. The paper reports 50.0 mIoU, 50.9 multi-scale (Table 3).
_base_ = './upernet_vit-b_rope-mixed_8xb2-160k_ade20k-512x512.py'
weights = 'hf-hub:naver-ai/rope_mixed_ape_deit_base_patch16_LS'
model = dict(
    backbone=dict(img_size=512, use_ape=True, init_cfg=dict(checkpoint=weights))
)
del weights
