# ADE20K with EoMT's augmentation: the long side is 512 times 0.5 to 2.0, crops of 512 x 512, padded
# with black. Tests have a short side of 512.
_base_ = './ade20k.py'

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='PhotoMetricDistortion', hue_delta=9),  # of 180: the source's 18 degrees
    dict(type='RandomFlip', prob=0.5),
    dict(
        type='RandomResize', scale=(512, 512), ratio_range=(0.5, 2.0), keep_ratio=True
    ),
    dict(type='RandomCrop', crop_size=(512, 512)),
    dict(type='Pad', size=(512, 512), pad_val=dict(img=0, seg=255)),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='ResizeShortestEdge', scale=512, max_size=10**6),
    # after Resize: labels keep the original's size
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs'),
]
# Not part of the recipe: sizes from 512 on, so that every window is a whole crop.
tta_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='TestTimeAug',
        transforms=[
            [
                dict(type='ResizeShortestEdge', scale=s, max_size=10**6)
                for s in (512, 640, 768, 896)
            ],
            [dict(type='RandomFlip', prob=0.0), dict(type='RandomFlip', prob=1.0)],
            [dict(type='LoadAnnotations')],
            [dict(type='PackSegInputs')],
        ],
    ),
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = dict(dataset=dict(pipeline=test_pipeline))
del train_pipeline, test_pipeline  # an override of these keys would change nothing
