# ViT-L, RoPE-Axial. The paper reports 51.8 mIoU, 52.6 multi-scale (Table 3).
_base_ = './upernet_vit-l_rope-mixed_8xb2-160k_ade20k-512x512.py'
model = dict(
    backbone=dict(
        rope=dict(type='AxialRoPE', theta=100.0),
        init_cfg=dict(checkpoint='hf-hub:naver-ai/rope_axial_deit_large_patch16_LS'),
    )
)
