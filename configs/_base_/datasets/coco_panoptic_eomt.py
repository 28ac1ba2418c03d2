# COCO 2017, things and stuff, with EoMT's augmentation: both sides within 640 times 0.1 to 2.0,
# crops of 640 x 640, padded with black at the bottom and right. Tests fit into 640 x 640, padded as
# well. Needs github.com/cocodataset/panopticapi.
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadPanopticAnnotations'),
    dict(type='RandomFlip', prob=0.5),
    dict(
        type='RandomResize', scale=(640, 640), ratio_range=(0.1, 2.0), keep_ratio=True
    ),
    dict(
        type='RandomCrop',
        crop_size=(640, 640),
        crop_type='absolute',
        recompute_bbox=True,
        allow_negative_crop=True,
    ),
    dict(
        type='FilterAnnotations',
        min_gt_bbox_wh=(1e-5, 1e-5),
        by_mask=True,
        keep_empty=False,
    ),
    dict(
        type='rope_dense.data.transforms.PadBottomRight',
        size=(640, 640),
        pad_val=dict(img=0, seg=255),
    ),
    dict(type='PackDetInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(640, 640), keep_ratio=True),
    dict(
        type='rope_dense.data.transforms.PadBottomRight',
        pad_to_square=True,
        pad_val=dict(img=0, seg=255),
    ),
    # after Resize: masks keep the size of the original
    dict(type='LoadPanopticAnnotations'),
    dict(
        type='PackDetInputs',
        meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'),
    ),
]
train_dataloader = dict(
    batch_size=2,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(
        type='CocoPanopticDataset',
        data_root='data/coco/',
        ann_file='annotations/panoptic_train2017.json',
        data_prefix=dict(img='train2017/', seg='annotations/panoptic_train2017/'),
        filter_cfg=dict(filter_empty_gt=True, min_size=0),
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=4,
    persistent_workers=True,
    drop_last=False,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='CocoPanopticDataset',
        data_root='data/coco/',
        ann_file='annotations/panoptic_val2017.json',
        data_prefix=dict(img='val2017/', seg='annotations/panoptic_val2017/'),
        test_mode=True,
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader

val_evaluator = dict(
    type='CocoPanopticMetric',
    ann_file='data/coco/annotations/panoptic_val2017.json',
    seg_prefix='data/coco/annotations/panoptic_val2017/',
)
test_evaluator = val_evaluator

del train_pipeline, test_pipeline  # an override of these keys would change nothing
