# DINO-Swin-T with RoPE-Mixed, COCO, 12 epochs. The paper reports 51.8 box AP (Table 2).
# Recipe: detrex, projects/dino/configs/dino-swin/dino_swin_tiny_224_4scale_12ep.py, without the
# relative position bias; window 7 as in pre-training, no warm-up, ImageNet-1k weights.
# Where no source settles it: frequencies have no weight decay (the rule of the pre-training) and
# the backbone's learning rate.
_base_ = [
    '../_base_/models/dino.py',
    '../_base_/datasets/coco_detection.py',
    '../_base_/schedules/dino_90k.py',
    '../_base_/mmdet_runtime.py',
]

model = dict(
    backbone=dict(
        type='RoPESwin',
        arch='tiny',
        rope=dict(type='MixedRoPE', theta=10.0),
        window_size=7,
        drop_path_rate=0.1,
        out_indices=(1, 2, 3),
        init_cfg=dict(
            type='Pretrained',
            checkpoint='hf-hub:naver-ai/swin_rope_mixed_tiny_patch4_window7_224',
        ),
    ),
    neck=dict(
        type='ChannelMapper',
        in_channels=[192, 384, 768],
        kernel_size=1,
        out_channels=256,
        bias=True,
        act_cfg=None,
        norm_cfg=dict(type='GN', num_groups=32),
        num_outs=4,
    ),
)
