# Swin-B, RoPE-Axial with relative position bias. The paper reports 50.0 mIoU (Table 4).
# Such weights are not published: the backbone starts from random values or your own (init_cfg).
_base_ = './mask2former_swin-b_rope-mixed_8xb2-160k_ade20k-640x640.py'
model = dict(
    backbone=dict(
        rope=dict(type='AxialRoPE', theta=50.0),
        attention=dict(type='TableBias'),
        init_cfg=None,
    )
)
