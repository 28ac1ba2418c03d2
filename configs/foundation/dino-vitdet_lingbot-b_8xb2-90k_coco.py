# DINO on LingBot-Vision-B, fine-tuned, COCO, 12 epochs. No paper reports this run; its accuracy was
# not measured: it is dino-vitdet_dinov3-b_8xb2-90k_coco.py with other weights, which use
# DINOv3's code, and nothing was tuned to them. The weights have the Apache-2.0 licence.
_base_ = './dino-vitdet_dinov3-b_8xb2-90k_coco.py'

model = dict(
    backbone=dict(
        arch='lingbot_base',
        init_cfg=dict(checkpoint='hf-hub:robbyant/lingbot-vision-vit-base'),
    )
)
