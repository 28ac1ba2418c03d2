# COCO 2017 in the usual layout with masks, and the augmentation of NAT's detectors: half of the
# images are resized, half are resized, cropped and resized again.
_base_ = './coco_detection.py'

from rope_dense.utils.config_parts import with_steps

train_sizes = [(size, 1333) for size in range(480, 801, 32)]
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='RandomFlip', prob=0.5),
    dict(
        type='RandomChoice',
        transforms=[
            [dict(type='RandomChoiceResize', scales=train_sizes, keep_ratio=True)],
            [
                dict(
                    type='RandomChoiceResize',
                    scales=[(400, 1333), (500, 1333), (600, 1333)],
                    keep_ratio=True,
                ),
                dict(
                    type='RandomCrop',
                    crop_type='absolute_range',
                    crop_size=(384, 600),
                    allow_negative_crop=True,
                ),
                dict(type='RandomChoiceResize', scales=train_sizes, keep_ratio=True),
            ],
        ],
    ),
    dict(type='PackDetInputs'),
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = with_steps(_base_.val_dataloader, LoadAnnotations=dict(with_mask=True))
test_dataloader = val_dataloader
val_evaluator = dict(metric=['bbox', 'segm'])
test_evaluator = val_evaluator
del (
    train_sizes,
    train_pipeline,
)  # an override of these keys would change nothing
