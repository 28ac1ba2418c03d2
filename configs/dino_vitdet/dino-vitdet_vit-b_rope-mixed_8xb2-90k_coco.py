# DINO-ViTDet-B with RoPE-Mixed, COCO, 12 epochs. The paper reports 51.2 box AP (Table 1).
# Recipe: detrex, projects/dino/configs/dino-vitdet/dino_vitdet_base_4scale_12ep.py, with
# rotary instead of absolute and decomposed relative position embedding, and no class token.
# Where no source settles it:
# - Warm-up of 250 iterations from factor 0.001. The shipped ViT-B file has none, but its README
#   calls training without one unstable, and the ViT-L file has this one.
# - Frequencies: no weight decay (the rule of the pre-training), learning rate of the backbone.
# - The pyramid is part of the backbone in detrex, so neck.0 has the backbone's learning rate.
_base_ = [
    '../_base_/models/dino.py',
    '../_base_/datasets/coco_detection.py',
    '../_base_/schedules/dino_90k.py',
    '../_base_/mmdet_runtime.py',
]

model = dict(
    backbone=dict(
        type='RoPEViT',
        arch='base',
        rope=dict(type='MixedRoPE', theta=10.0),
        rope_scaling=dict(
            type='none', grid=(50, 83)
        ),  # of 800 x 1333 pixels, for other types at test
        with_cls_token=False,
        window_size=14,
        window_block_indexes=(0, 1, 3, 4, 6, 7, 9, 10),
        drop_path_rate=0.1,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='hf-hub:naver-ai/rope_mixed_deit_base_patch16_LS',
        ),
    ),
    neck=[
        dict(type='PlainViTFPN', in_channels=768, out_channels=256),
        dict(
            type='ChannelMapper',
            in_channels=[256, 256, 256, 256],
            kernel_size=1,
            out_channels=256,
            bias=True,
            act_cfg=None,
            norm_cfg=dict(type='GN', num_groups=32),
            num_outs=4,
        ),
    ],
)

optim_wrapper = dict(paramwise_cfg=dict(lr_mult={'neck.0': 0.1}))
param_scheduler = [
    dict(type='LinearLR', by_epoch=False, start_factor=0.001, begin=0, end=250),
    dict(type='MultiStepLR', by_epoch=False, milestones=[82500], gamma=0.1),
]
