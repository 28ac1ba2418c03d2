# Swin-T, RoPE-Axial with relative position bias. The paper reports 51.7 box AP (Table 2).
# Such weights are not published: the backbone starts from random values or your own (init_cfg).
_base_ = './dino_swin-t_rope-mixed_8xb2-90k_coco.py'
model = dict(
    backbone=dict(
        rope=dict(type='AxialRoPE', theta=50.0),
        attention=dict(type='TableBias'),
        init_cfg=None,
    )
)
