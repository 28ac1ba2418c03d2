# UperNet on LingBot-Vision-S, fine-tuned, ADE20K, 512 x 512, 160k iterations; as for size B, with
# the head as wide as the backbone. No paper reports this run.
_base_ = './upernet_dinov3-b_8xb2-160k_ade20k-512x512.py'

model = dict(
    backbone=dict(
        arch='lingbot_small',
        init_cfg=dict(checkpoint='hf-hub:robbyant/lingbot-vision-vit-small'),
    ),
    neck=dict(embed_dim=384),
    decode_head=dict(in_channels=[384, 384, 384, 384], channels=384),
    auxiliary_head=dict(in_channels=384),
)
