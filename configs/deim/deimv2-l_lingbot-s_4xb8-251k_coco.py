# DEIMv2-L on LingBot-Vision-S: the config for DINOv3 with weights under the Apache-2.0 licence. Not
# among the authors' configs; its accuracy was not measured.
_base_ = './deimv2-l_dinov3-s_4xb8-251k_coco.py'

model = dict(
    backbone=dict(
        arch='lingbot_small',
        qkv_bias='default',
        init_cfg=dict(checkpoint='hf-hub:robbyant/lingbot-vision-vit-small'),
    )
)
