# EoMT on DINOv3 ViT-L, COCO instance, 640 x 640, 12 epochs. The authors have 45.9 mask AP.
# Recipe: tue-mps/eomt at 7bd19dd, configs/dinov3/coco/instance/eomt_large_640.yaml and the code
# that reads it: 7329 iterations an epoch, of the 117266 images with objects; layer decay 0.8 below
# the 4 blocks that the queries join, which have the full learning rate.
# - Biases of queries and values, as in Hugging Face's DINOv3, the authors' initial weights.
# Differences: OpenCV resizes without antialiasing; a crop without objects is replaced by
# another image (the authors crop the same image again).
# The weights have the DINOv3 licence.
_base_ = [
    '../_base_/models/eomt_coco.py',
    '../_base_/datasets/coco_instance_eomt.py',
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
    panoptic_head=dict(
        in_channels=1024,
        num_stuff_classes=0,
        loss_cls=dict(class_weight=[1.0] * 80 + [0.1]),
    ),
    panoptic_fusion_head=dict(num_stuff_classes=0),
    test_cfg=dict(
        _delete_=True, panoptic_on=False, instance_on=True, max_per_image=100
    ),
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
        end=87948,
        power=0.9,
    )
]
train_cfg = dict(max_iters=87948, val_interval=14658)
custom_hooks = [
    dict(
        type='MaskAnnealingHook',
        start=[14782, 29564, 44346, 59128],
        end=[29564, 44346, 59128, 73910],
        power=0.9,
    )
]
