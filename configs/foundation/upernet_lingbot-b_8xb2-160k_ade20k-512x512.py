# UperNet on LingBot-Vision-B, fine-tuned, ADE20K, 512 x 512, 160k iterations. No paper reports this
# run; its accuracy was not measured: it is upernet_dinov3-b_8xb2-160k_ade20k-512x512.py with
# other weights, which use DINOv3's code, and nothing was tuned to them. The weights have the
# Apache-2.0 licence.
_base_ = './upernet_dinov3-b_8xb2-160k_ade20k-512x512.py'

model = dict(
    backbone=dict(
        arch='lingbot_base',
        init_cfg=dict(checkpoint='hf-hub:robbyant/lingbot-vision-vit-base'),
    )
)
