# DINO on LingBot-Vision-L, fine-tuned, COCO, 12 epochs; as for size B, with the drop path, the
# decay and the global blocks of detrex's DINO on EVA-02-L. No paper reports this run.
_base_ = './dino-vitdet_dinov3-b_8xb2-90k_coco.py'

model = dict(
    backbone=dict(
        arch='lingbot_large',
        window_block_indexes=(*range(5), *range(6, 11), *range(12, 17), *range(18, 23)),
        drop_path_rate=0.4,
        init_cfg=dict(checkpoint='hf-hub:robbyant/lingbot-vision-vit-large'),
    ),
    neck=[
        dict(type='PlainViTFPN', in_channels=1024, out_channels=256),
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
optim_wrapper = dict(paramwise_cfg=dict(layer_decay=0.8))
