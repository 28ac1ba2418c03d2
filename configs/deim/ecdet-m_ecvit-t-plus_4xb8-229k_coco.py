# ECDet-M on ECViT-T+, COCO, 62 epochs. Its authors report 54.3 AP.
# Recipe: ecdetseg/configs/ecdet/ecdet_m.yml; as for S.
_base_ = './ecdet-s_ecvit-t_4xb8-274k_coco.py'

from rope_dense.models.deim.recipe import set_stages

model = dict(
    backbone=dict(
        arch='ecvit_tiny_plus',
        init_cfg=dict(
            checkpoint='https://github.com/capsule2077/edgecrafter/releases/download/edgecrafterv1/ecvittplus.pth'
        ),
    ),
    neck=dict(in_channels=256),
    encoder=dict(in_channels=(256, 256, 256), embed_dims=256, expansion=0.75),
    bbox_head=dict(embed_dims=256, decoder=dict(feedforward_channels=1024)),
)

globals().update(
    set_stages(
        _base_,
        model,
        epochs=62,
        starts=(0, 30, 60),
        mosaic_prob=0.75,
        mixup_prob=0.75,
        copyblend_prob=0.0,
    )
)
