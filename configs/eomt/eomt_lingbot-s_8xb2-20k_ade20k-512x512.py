# EoMT on LingBot-Vision-S, ADE20K semantic: the config for DINOv3 with weights under the Apache-2.0
# licence. Not among the authors' configs; its accuracy was not measured.
_base_ = './eomt_dinov3-b_8xb2-20k_ade20k-512x512.py'

model = dict(
    backbone=dict(
        arch='lingbot_small',
        qkv_bias='default',
        init_cfg=dict(checkpoint='hf-hub:robbyant/lingbot-vision-vit-small'),
    ),
    decode_head=dict(in_channels=384),
)
