# ViT-B, RoPE-Axial with APE. The paper reports 49.5 mIoU, 50.5 multi-scale (Table 3).
_base_ = './upernet_vit-b_rope-mixed-ape_8xb2-160k_ade20k-512x512.py'
model = dict(
    backbone=dict(
        rope=dict(type='AxialRoPE', theta=100.0),
        init_cfg=dict(checkpoint='hf-hub:naver-ai/rope_axial_ape_deit_base_patch16_LS'),
    )
)
