# Swin-S, RoPE-Axial. The paper reports 50.4 mIoU (Table 4).
_base_ = './mask2former_swin-s_rope-mixed_8xb2-160k_ade20k-512x512.py'
model = dict(
    backbone=dict(
        rope=dict(type='AxialRoPE', theta=50.0),
        init_cfg=dict(
            checkpoint='hf-hub:naver-ai/swin_rope_axial_small_patch4_window7_224'
        ),
    )
)
