# ECSeg-S on ECViT-T, COCO, 74 epochs: ECDet-S with masks. Its authors report 43.0 mask AP.
# Recipe: Intellindust-AI-Lab/EdgeCrafter at 706d037, ecdetseg/configs/ecseg/ecseg_s.yml. What
# differs from it: docs/realtime.md.
_base_ = './ecdet-s_ecvit-t_4xb8-274k_coco.py'

from rope_dense.models.deim.recipe import with_masks

model = dict(
    backbone=dict(
        init_cfg=dict(
            checkpoint='https://github.com/capsule2077/edgecrafter/releases/download/edgecrafterv1/ecseg_vitt.pth'
        )
    )
)

globals().update(with_masks(_base_, model))
