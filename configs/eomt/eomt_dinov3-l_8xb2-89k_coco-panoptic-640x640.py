# EoMT on DINOv3 ViT-L, COCO panoptic, 640 x 640, 12 epochs. The authors have 56.8 PQ.
# Recipe: tue-mps/eomt at 7bd19dd, configs/dinov3/coco/panoptic/eomt_large_640.yaml and the code
# that reads it: 7391 iterations an epoch; layer decay 0.8 below the 4 blocks that the queries
# join, which have the full learning rate.
# - Biases of queries and values, as in Hugging Face's DINOv3, the authors' initial weights.
# Differences: OpenCV resizes without antialiasing; images with an empty crop are kept.
# The weights have the DINOv3 licence.
_base_ = [
    '../_base_/models/eomt_coco.py',
    '../_base_/datasets/coco_panoptic_eomt.py',
    '../_base_/schedules/eomt.py',
    '../_base_/mmdet_runtime.py',
]

model = dict(
    backbone=dict(
        type='RoPEViT',
        arch='dinov3_large',
        qkv_bias='qv',
        init_cfg=dict(
            type='Pretrained',
            checkpoint='hf-hub:timm/vit_large_patch16_dinov3_qkvb.lvd1689m',
        ),
    ),
    panoptic_head=dict(in_channels=1024),
)

rates = {f'backbone.blocks.{block}': 0.8 ** (23 - block) for block in range(20)}
rates |= {'backbone': 0.8**23, 'backbone.blocks': 1.0, 'backbone.norm': 1.0}
optim_wrapper = dict(paramwise_cfg=dict(lr_mult=rates))
del rates
param_scheduler = [
    dict(
        type='TwoStageWarmupPolyLR',
        by_epoch=False,
        warmup=2000,
        backbone_warmup=3000,
        end=88692,
        power=0.9,
    )
]
train_cfg = dict(max_iters=88692, val_interval=7391)
custom_hooks = [
    dict(
        type='MaskAnnealingHook',
        start=[0, 29564, 44346, 59128],
        end=[3000, 44346, 59128, 73910],
        power=0.9,
    )
]
