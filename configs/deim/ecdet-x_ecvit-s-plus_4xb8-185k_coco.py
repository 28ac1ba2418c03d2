# ECDet-X on ECViT-S+, COCO, 50 epochs. Its authors report 57.9 AP.
# Recipe: ecdetseg/configs/ecdet/ecdet_x.yml; as for L.
_base_ = './ecdet-l_ecvit-s_4xb8-185k_coco.py'

model = dict(
    backbone=dict(
        arch='ecvit_small_plus',
        init_cfg=dict(
            checkpoint='https://github.com/capsule2077/edgecrafter/releases/download/edgecrafterv1/ecvitsplus.pth'
        ),
    ),
    encoder=dict(feedforward_channels=2048, expansion=1.5),
    bbox_head=dict(decoder=dict(feedforward_channels=2048)),
)
optim_wrapper = dict(
    paramwise_cfg=dict(lr_mult={'backbone': 0.005, 'neck': 0.005}),
)
