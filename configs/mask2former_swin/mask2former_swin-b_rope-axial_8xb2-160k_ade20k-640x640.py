# Swin-B, RoPE-Axial. The paper reports 52.0 mIoU (Table 4).
_base_ = './mask2former_swin-b_rope-mixed_8xb2-160k_ade20k-640x640.py'
model = dict(
    backbone=dict(
        rope=dict(type='AxialRoPE', theta=50.0),
        init_cfg=dict(
            checkpoint='hf-hub:naver-ai/swin_rope_axial_base_patch4_window7_224'
        ),
    )
)
