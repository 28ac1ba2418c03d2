# ViT-L, APE, the baseline. The paper reports 50.8 mIoU, 51.6 multi-scale (Table 3).
_base_ = './upernet_vit-l_rope-mixed_8xb2-160k_ade20k-512x512.py'
weights = 'hf-hub:naver-ai/deit_large_patch16_LS'
backbone = dict(
    img_size=512, rope=None, use_ape=True, init_cfg=dict(checkpoint=weights)
)
model = dict(backbone=backbone)
del weights, backbone
