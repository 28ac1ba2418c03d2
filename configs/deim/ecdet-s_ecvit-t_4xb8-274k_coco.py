# ECDet-S on ECViT-T, COCO, 74 epochs. Its authors report 51.7 AP.
# Recipe: Intellindust-AI-Lab/EdgeCrafter at 706d037, ecdetseg/configs/ecdet/ecdet_s.yml. What
# differs from it: docs/realtime.md.
_base_ = [
    '../_base_/models/deim.py',
    '../_base_/datasets/coco_dense.py',
    '../_base_/schedules/dense.py',
    '../_base_/mmdet_runtime.py',
]

from rope_dense.models.deim.recipe import set_stages

custom_imports = dict(imports=['rope_dense', 'rope_dense.data.dense'])
model = dict(
    backbone=dict(
        arch='ecvit_tiny',
        out_indices=(10, 11),
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://github.com/capsule2077/edgecrafter/releases/download/edgecrafterv1/ecvitt.pth',
        ),
    ),
    neck=dict(_delete_=True, type='MeanMapPyramid', in_channels=192, out_channels=None),
    encoder=dict(act='SiLU'),
    bbox_head=dict(decoder=dict(norm='layer', ffn='mlp')),
)
optim_wrapper = dict(paramwise_cfg=dict(lr_mult={'neck': 0.05}))

globals().update(
    set_stages(
        _base_,
        model,
        epochs=74,
        starts=(0, 36, 72),
        mosaic_prob=0.75,
        mixup_prob=0.75,
        copyblend_prob=0.0,
    )
)
