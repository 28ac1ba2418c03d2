# DEIMv2-X on LingBot-Vision-B: the config for DINOv3 with weights under the Apache-2.0 licence. Not
# among the authors' configs; its accuracy was not measured.
_base_ = './deimv2-x_dinov3-s-plus_4xb8-214k_coco.py'

model = dict(
    backbone=dict(
        arch='lingbot_base',
        qkv_bias='default',
        init_cfg=dict(checkpoint='hf-hub:robbyant/lingbot-vision-vit-base'),
    ),
    neck=dict(in_channels=768),
)
