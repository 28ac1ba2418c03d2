# ADE20K with the augmentation of Mask2Former: 16 sizes, crops of 512 x 512 without a limit on one
# class, padded with grey and 'ignore'.
_base_ = './ade20k.py'

train_dataloader = dict(
    dataset=dict(
        pipeline=[
            dict(type='LoadImageFromFile'),
            dict(type='LoadAnnotations'),
            dict(
                type='RandomChoiceResize',
                scales=[512 * tenths // 10 for tenths in range(5, 21)],
                resize_type='ResizeShortestEdge',
                max_size=2048,
            ),
            dict(type='RandomCrop', crop_size=(512, 512)),
            dict(type='PhotoMetricDistortion'),
            dict(type='RandomFlip', prob=0.5),
            dict(type='Pad', size=(512, 512), pad_val=dict(img=128, seg=255)),
            dict(type='PackSegInputs'),
        ]
    )
)
tta_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='TestTimeAug',
        transforms=[
            [
                dict(type='ResizeShortestEdge', scale=s, max_size=3584)
                for s in (256, 384, 512, 640, 768, 896)
            ],
            [dict(type='RandomFlip', prob=0.0), dict(type='RandomFlip', prob=1.0)],
            [dict(type='LoadAnnotations')],
            [dict(type='PackSegInputs')],
        ],
    ),
]
