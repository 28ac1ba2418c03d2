# DINO on DINOv3 ViT-S, fine-tuned, COCO, 12 epochs; as for size B. No paper reports this run.
_base_ = './dino-vitdet_dinov3-b_8xb2-90k_coco.py'

model = dict(
    backbone=dict(
        arch='dinov3_small',
        init_cfg=dict(checkpoint='hf-hub:timm/vit_small_patch16_dinov3.lvd1689m'),
    ),
    neck=[
        dict(type='PlainViTFPN', in_channels=384, out_channels=256),
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
