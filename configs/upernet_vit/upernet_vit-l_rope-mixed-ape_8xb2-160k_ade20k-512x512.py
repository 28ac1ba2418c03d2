# ViT-L, RoPE-Mixed with APE. The paper reports 52.0 mIoU, 52.6 multi-scale (Table 3).
_base_ = './upernet_vit-l_rope-mixed_8xb2-160k_ade20k-512x512.py'
weights = 'hf-hub:naver-ai/rope_mixed_ape_deit_large_patch16_LS'
model = dict(
    backbone=dict(img_size=512, use_ape=True, init_cfg=dict(checkpoint=weights))
)
del weights
