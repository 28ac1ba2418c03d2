# Linear segmentation on a frozen DINOv3 ViT-B, ADE20K, 512 x 512, 40k iterations. DINOv3's model
# card reports 51.8 mIoU; it was not run at full size here.
# Recipe: facebookresearch/dinov3 at 6876159, dinov3/eval/segmentation: train.py, transforms.py,
# models/models/linear_head.py and configs/config-ade20k-linear-training.yaml. EUPE's is the same.
# - The map of the last block after the final norm, without class token and registers.
# - Hue is varied over the whole circle, as in the authors' PhotoMetricDistortion (mmseg: a tenth of
#   the circle to either side).
# Differences: the warm-up (see the schedule), images are resized by OpenCV without antialiasing,
# saturation is changed in HSV (the authors blend with grey), and no side is longer than 2048 pixels
# x the ratio.
# The weights have the DINOv3 licence.
_base_ = [
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/linear_40k.py',
    '../_base_/mmseg_runtime.py',
]

model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        size=(512, 512),
        pad_val=0,
        seg_pad_val=255,
    ),
    backbone=dict(
        type='RoPEViT',
        arch='dinov3_base',
        frozen_stages='all',
        init_cfg=dict(
            type='Pretrained', checkpoint='hf-hub:timm/vit_base_patch16_dinov3.lvd1689m'
        ),
    ),
    decode_head=dict(
        type='LinearHead',
        in_channels=768,
        dropout_ratio=0.1,
        num_classes=150,
        norm_cfg=dict(type='SyncBN', requires_grad=True),
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='slide', crop_size=(512, 512), stride=(341, 341)),
)
tta_model = dict(type='SegTTAModel')

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(
        type='RandomResize', scale=(2048, 512), ratio_range=(0.5, 2.0), keep_ratio=True
    ),
    dict(type='RandomCrop', crop_size=(512, 512), cat_max_ratio=0.75),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion', hue_delta=90),
    dict(type='PackSegInputs'),
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
del train_pipeline  # an override of this key would change nothing
