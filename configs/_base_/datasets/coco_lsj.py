# COCO 2017 with masks and the large scale jittering of ViTDet: images of 0.1 to 2 times 1024
# pixels, cropped to 1024. A config pads batches to squares of 1024 (pad_size_divisor).
_base_ = './coco_detection.py'

from rope_dense.utils.config_parts import with_steps

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='RandomFlip', prob=0.5),
    dict(
        type='RandomResize', scale=(1024, 1024), ratio_range=(0.1, 2.0), keep_ratio=True
    ),
    dict(
        type='RandomCrop',
        crop_type='absolute',
        crop_size=(1024, 1024),
        recompute_bbox=True,
        allow_negative_crop=True,
    ),
    dict(type='FilterAnnotations', min_gt_bbox_wh=(1e-2, 1e-2)),
    dict(type='PackDetInputs'),
]
train_dataloader = dict(batch_size=8, dataset=dict(pipeline=train_pipeline))
val_dataloader = with_steps(
    _base_.val_dataloader,
    Resize=dict(scale=(1024, 1024)),
    LoadAnnotations=dict(with_mask=True),
)
test_dataloader = val_dataloader
val_evaluator = dict(metric=['bbox', 'segm'])
test_evaluator = val_evaluator

del train_pipeline  # an override of this key would change nothing
