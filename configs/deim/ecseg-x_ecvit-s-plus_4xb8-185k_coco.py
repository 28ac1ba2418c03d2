# ECSeg-X on ECViT-S+, COCO, 50 epochs. Its authors report 48.4 mask AP.
# Recipe: ecdetseg/configs/ecseg/ecseg_x.yml; as for S.
_base_ = './ecdet-x_ecvit-s-plus_4xb8-185k_coco.py'

from rope_dense.models.deim.recipe import with_masks

model = dict(
    backbone=dict(
        init_cfg=dict(
            checkpoint='https://github.com/capsule2077/edgecrafter/releases/download/edgecrafterv1/ecseg_vitsplus.pth'
        )
    )
)

globals().update(with_masks(_base_, model))
