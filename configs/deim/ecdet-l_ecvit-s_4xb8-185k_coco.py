# ECDet-L on ECViT-S, COCO, 50 epochs. Its authors report 57.0 AP.
# Recipe: ecdetseg/configs/ecdet/ecdet_l.yml; as for S.
_base_ = './ecdet-s_ecvit-t_4xb8-274k_coco.py'

from rope_dense.models.deim.recipe import set_stages

model = dict(
    backbone=dict(
        arch='ecvit_small',
        init_cfg=dict(
            checkpoint='https://github.com/capsule2077/edgecrafter/releases/download/edgecrafterv1/ecvits.pth'
        ),
    ),
    neck=dict(in_channels=384, out_channels=256),
    encoder=dict(
        in_channels=(256, 256, 256),
        embed_dims=256,
        feedforward_channels=1024,
        num_blocks=3,
        expansion=0.75,
    ),
    bbox_head=dict(embed_dims=256, decoder=dict(feedforward_channels=1024)),
)
optim_wrapper = dict(
    optimizer=dict(weight_decay=1.25e-4),
    paramwise_cfg=dict(lr_mult={'backbone': 0.01, 'neck': 0.01}),
)

globals().update(
    set_stages(
        _base_,
        model,
        epochs=50,
        starts=(0, 24, 48),
        mosaic_prob=1.0,
        mixup_prob=1.0,
        copyblend_prob=0.0,
    )
)
