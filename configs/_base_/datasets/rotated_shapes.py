# 2000 generated images of 96 x 96 pixels with rotated shapes, 200 to evaluate, in DOTA's layout:
# rope-dense research make-shapes data/rotated_shapes --layout dota --size 96 --train 2000 --val 200
metainfo = dict(classes=('rectangle', 'ellipse', 'triangle', 'arrow'))
load = [
    dict(type='mmdet.LoadImageFromFile'),
    dict(type='mmdet.LoadAnnotations', with_bbox=True, box_type='qbox'),
    dict(type='ConvertBoxType', box_type_mapping=dict(gt_bboxes='rbox')),
]
train_dataloader = dict(
    batch_size=8,
    num_workers=0,
    persistent_workers=False,
    drop_last=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(
        type='DOTADataset',
        data_root='data/rotated_shapes/dota/train/',
        ann_file='labelTxt/',
        data_prefix=dict(img_path='images/'),
        metainfo=metainfo,
        filter_cfg=dict(filter_empty_gt=True),
        pipeline=[
            *load,
            dict(
                type='mmdet.RandomFlip',
                prob=0.75,
                direction=['horizontal', 'vertical', 'diagonal'],
            ),
            dict(type='mmdet.PackDetInputs'),
        ],
    ),
)
val_dataloader = dict(
    batch_size=8,
    num_workers=0,
    persistent_workers=False,
    drop_last=False,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='DOTADataset',
        data_root='data/rotated_shapes/dota/val/',
        ann_file='labelTxt/',
        data_prefix=dict(img_path='images/'),
        metainfo=metainfo,
        test_mode=True,
        pipeline=[
            dict(type='mmdet.LoadImageFromFile'),
            dict(type='mmdet.Resize', scale=(96, 96), keep_ratio=True),
            *load[1:],
            dict(
                type='mmdet.PackDetInputs',
                meta_keys=(
                    'img_id',
                    'img_path',
                    'ori_shape',
                    'img_shape',
                    'scale_factor',
                ),
            ),
        ],
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(
    type='DOTAMetric',
    metric='mAP',
    iou_thrs=[0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95],
)
test_evaluator = val_evaluator
del metainfo, load
