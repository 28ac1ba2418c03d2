# COCO 2017 with dense one-to-one augmentation, in stages by epochs as for DEIMv2-S: none in epochs
# 0 to 3; from 4 half of the images become mosaics and the others are zoomed out and cropped, all
# with random colours; from 64 no mosaics; from 120 none. Every image is stretched to 640 x 640. All
# images are used, also those without objects, each once in an epoch.
mosaic = dict(
    type='AffineMosaic',
    part_size=320,
    rotation=10,
    translation=(0.1, 0.1),
    scaling=(0.5, 1.5),
    max_cached_images=50,
)
colours = dict(type='PhotometricJitter', prob=0.5)
zoom_and_crop = [
    dict(type='Expand', mean=(0, 0, 0), to_rgb=False, ratio_range=(1, 4), prob=0.5),
    dict(type='RandomIoUCrop', prob=0.8),
]
resize = dict(type='Resize', scale=(640, 640), keep_ratio=False, backend='pillow')
large_enough = dict(type='FilterAnnotations', min_gt_bbox_wh=(1, 1), keep_empty=False)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(
        type='StageByEpoch',
        starts=[4, 64, 120],
        transforms=[
            [],
            [
                dict(
                    type='RandomChoice',
                    prob=[0.5, 0.5],
                    transforms=[[mosaic, colours], [colours, *zoom_and_crop]],
                )
            ],
            [colours, *zoom_and_crop],
            [],
        ],
    ),
    large_enough,
    dict(type='RandomFlip', prob=0.5),
    resize,
    large_enough,
    dict(type='PackDetInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    resize,
    # after Resize: the boxes keep the size of the original
    dict(type='LoadAnnotations', with_bbox=True),
    dict(
        type='PackDetInputs',
        meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'),
    ),
]
tta_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='TestTimeAug',
        transforms=[
            [
                dict(
                    type='Resize',
                    scale=(size, size),
                    keep_ratio=False,
                    backend='pillow',
                )
                for size in (640, 480, 800)
            ],
            [dict(type='RandomFlip', prob=0.0), dict(type='RandomFlip', prob=1.0)],
            [dict(type='LoadAnnotations', with_bbox=True)],
            [dict(type='PackDetInputs')],
        ],
    ),
]

train_dataloader = dict(
    batch_size=8,
    num_workers=4,
    persistent_workers=True,
    drop_last=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(
        type='CocoDataset',
        data_root='data/coco/',
        ann_file='annotations/instances_train2017.json',
        data_prefix=dict(img='train2017/'),
        filter_cfg=dict(filter_empty_gt=False, min_size=0),
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=8,
    num_workers=4,
    persistent_workers=True,
    drop_last=False,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='CocoDataset',
        data_root='data/coco/',
        ann_file='annotations/instances_val2017.json',
        data_prefix=dict(img='val2017/'),
        test_mode=True,
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader

val_evaluator = dict(
    type='CocoMetric',
    ann_file='data/coco/annotations/instances_val2017.json',
    metric='bbox',
)
test_evaluator = val_evaluator

# an override of these keys would change nothing
del mosaic, colours, zoom_and_crop, resize, large_enough, train_pipeline, test_pipeline
