# ECSeg-L on ECViT-S, COCO, 50 epochs. Its authors report 47.1 mask AP.
# Recipe: ecdetseg/configs/ecseg/ecseg_l.yml; as for S.
_base_ = './ecdet-l_ecvit-s_4xb8-185k_coco.py'

from rope_dense.models.deim.recipe import with_masks

model = dict(
    backbone=dict(
        init_cfg=dict(
            checkpoint='https://github.com/capsule2077/edgecrafter/releases/download/edgecrafterv1/ecseg_vits.pth'
        )
    )
)
optim_wrapper = dict(paramwise_cfg=dict(lr_mult={'backbone': 0.005, 'neck': 0.005}))

globals().update(with_masks(_base_, model))
