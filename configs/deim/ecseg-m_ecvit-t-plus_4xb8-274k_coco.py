# ECSeg-M on ECViT-T+, COCO, 74 epochs. Its authors report 45.2 mask AP.
# Recipe: ecdetseg/configs/ecseg/ecseg_m.yml; as for S.
_base_ = './ecdet-m_ecvit-t-plus_4xb8-229k_coco.py'

from rope_dense.models.deim.recipe import set_stages, with_masks

model = dict(
    backbone=dict(
        init_cfg=dict(
            checkpoint='https://github.com/capsule2077/edgecrafter/releases/download/edgecrafterv1/ecseg_vittplus.pth'
        )
    )
)

stages = set_stages(
    _base_,
    model,
    epochs=74,
    starts=(0, 36, 72),
    mosaic_prob=0.75,
    mixup_prob=0.75,
    copyblend_prob=0.0,
)
globals().update(with_masks(_base_, model, stages))
del stages
