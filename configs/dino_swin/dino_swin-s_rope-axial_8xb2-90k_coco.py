# Swin-S, RoPE-Axial. The paper reports 53.1 box AP (Table 2).
_base_ = './dino_swin-s_rope-mixed_8xb2-90k_coco.py'
model = dict(
    backbone=dict(
        rope=dict(type='AxialRoPE', theta=50.0),
        init_cfg=dict(
            checkpoint='hf-hub:naver-ai/swin_rope_axial_small_patch4_window7_224'
        ),
    )
)
