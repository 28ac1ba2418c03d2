# NYU Depth v2 as mmseg's tools/dataset_converters/nyu.py writes it (16-bit PNG of millimetres),
# with the augmentation of DINOv3's linear depth: crop of the frame, rotation, flip, crop, colours.
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadDepth', unit=0.001),
    dict(type='CropBox', box=(43, 45, 608, 472)),
    dict(type='RandomRotate', prob=0.5, degree=2.5, pad_val=0, seg_pad_val=0),
    dict(type='RandomFlip', prob=0.5),
    dict(type='RandomCrop', crop_size=(416, 544)),
    dict(type='RandomColourGain', prob=0.5, brightness=(0.75, 1.25)),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(640, 480), keep_ratio=True),
    dict(type='LoadDepth', unit=0.001),  # after Resize: it keeps its size
    dict(type='PackSegInputs'),
]
tta_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='TestTimeAug',
        transforms=[
            [dict(type='Resize', scale=(640, 480), keep_ratio=True)],
            [dict(type='RandomFlip', prob=0.0), dict(type='RandomFlip', prob=1.0)],
            [dict(type='LoadDepth', unit=0.001)],
            [dict(type='PackSegInputs')],
        ],
    ),
]

train_dataloader = dict(
    batch_size=2,
    num_workers=4,
    persistent_workers=True,
    drop_last=True,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(
        type='NYUDataset',
        data_root='data/nyu',
        data_prefix=dict(img_path='images/train', depth_map_path='annotations/train'),
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='NYUDataset',
        data_root='data/nyu',
        data_prefix=dict(img_path='images/test', depth_map_path='annotations/test'),
        test_mode=True,
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader

val_evaluator = dict(
    type='ValidDepthMetric',
    min_depth_eval=0.001,
    max_depth_eval=10.0,
    crop_type='nyu_crop',
)
test_evaluator = val_evaluator

del train_pipeline, test_pipeline  # an override of these keys would change nothing
