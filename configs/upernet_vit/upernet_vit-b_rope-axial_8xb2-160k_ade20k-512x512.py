# ViT-B, RoPE-Axial. The paper reports 49.0 mIoU, 49.9 multi-scale (Table 3).
_base_ = './upernet_vit-b_rope-mixed_8xb2-160k_ade20k-512x512.py'
model = dict(
    backbone=dict(
        rope=dict(type='AxialRoPE', theta=100.0),
        init_cfg=dict(checkpoint='hf-hub:naver-ai/rope_axial_deit_base_patch16_LS'),
    )
)
