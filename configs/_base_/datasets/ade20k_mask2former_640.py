# ADE20K with the augmentation of Mask2Former for crops of 640 x 640: the sizes for 512 x 512
# times 1.25.
_base_ = './ade20k.py'

train_dataloader = dict(
    dataset=dict(
        pipeline=[
            dict(type='LoadImageFromFile'),
            dict(type='LoadAnnotations'),
            dict(
                type='RandomChoiceResize',
                scales=[640 * tenths // 10 for tenths in range(5, 21)],
                resize_type='ResizeShortestEdge',
                max_size=2560,
            ),
            dict(type='RandomCrop', crop_size=(640, 640)),
            dict(type='PhotoMetricDistortion'),
            dict(type='RandomFlip', prob=0.5),
            dict(type='Pad', size=(640, 640), pad_val=dict(img=128, seg=255)),
            dict(type='PackSegInputs'),
        ]
    )
)
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(2560, 640), keep_ratio=True),
    # after Resize: labels keep the original's size
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs'),
]
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = dict(dataset=dict(pipeline=test_pipeline))
tta_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='TestTimeAug',
        transforms=[
            [
                dict(type='ResizeShortestEdge', scale=s, max_size=4480)
                for s in (320, 480, 640, 800, 960, 1120)
            ],
            [dict(type='RandomFlip', prob=0.0), dict(type='RandomFlip', prob=1.0)],
            [dict(type='LoadAnnotations')],
            [dict(type='PackSegInputs')],
        ],
    ),
]

del test_pipeline  # an override of this key would change nothing
