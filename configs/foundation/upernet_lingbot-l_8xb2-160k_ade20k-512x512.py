# UperNet on LingBot-Vision-L, fine-tuned, ADE20K, 512 x 512, 160k iterations; as for size B, with
# the drop path and the learning rates of BEiT v2's recipe for size L. No paper reports this run.
# - Maps: 5, 11, 17 and 23 of 24 blocks, at even intervals.
_base_ = './upernet_dinov3-b_8xb2-160k_ade20k-512x512.py'

model = dict(
    backbone=dict(
        arch='lingbot_large',
        out_indices=(5, 11, 17, 23),
        drop_path_rate=0.2,
        init_cfg=dict(checkpoint='hf-hub:robbyant/lingbot-vision-vit-large'),
    ),
    neck=dict(embed_dim=1024),
    decode_head=dict(in_channels=[1024, 1024, 1024, 1024], channels=1024),
    auxiliary_head=dict(in_channels=1024),
)
optim_wrapper = dict(optimizer=dict(lr=4e-5), paramwise_cfg=dict(layer_decay=0.9))
