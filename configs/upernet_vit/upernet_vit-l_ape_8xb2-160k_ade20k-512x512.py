# ViT-L, APE, the baseline. The paper has 50.8 mIoU, 51.6 multi-scale (Table 3).
_base_ = './upernet_vit-l_rope-mixed-ape_8xb2-160k_ade20k-512x512.py'
model = dict(
    backbone=dict(rope=None, init_cfg=dict(checkpoint='hf-hub:naver-ai/deit_large_patch16_LS'))
)
