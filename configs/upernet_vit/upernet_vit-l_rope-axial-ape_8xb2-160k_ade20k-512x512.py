# ViT-L, RoPE-Axial with APE. The paper reports 51.6 mIoU, 52.4 multi-scale (Table 3).
_base_ = './upernet_vit-l_rope-mixed_8xb2-160k_ade20k-512x512.py'
weights = 'hf-hub:naver-ai/rope_axial_ape_deit_large_patch16_LS'
backbone = dict(img_size=512, rope=dict(type='AxialRoPE', theta=100.0), use_ape=True)
model = dict(backbone=dict(**backbone, init_cfg=dict(checkpoint=weights)))
del weights, backbone
