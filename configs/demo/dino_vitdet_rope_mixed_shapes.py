custom_imports = dict(imports=['rope_dense.backbones','rope_dense.necks','rope_dense.detectors.dino'], allow_failed_imports=False)
default_scope = 'mmdet'
data_root = 'work_dirs/demo/data/coco/'
image_size = (160, 160)
metainfo = dict(classes=('circle', 'square', 'triangle', 'star', 'cross', 'ring'))

model = dict(
    type='PublishedDINO',
    num_queries=30,
    with_box_refine=True,
    as_two_stage=True,
    data_preprocessor=dict(
        type='DetDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_size_divisor=1,
    ),
    backbone=dict(
        type='RoPEViT',
        arch=dict(embed_dims=192, depth=6, num_heads=3),
        patch_size=16,
        with_cls_token=False,
        window_size=5,
        window_block_indexes=(0, 1, 3, 4),
        layer_scale_init_value=None,
        rope=dict(type='MixedRoPE', theta=10.0),
    ),
    neck=[
        dict(type='SimpleFPN', in_channels=192, out_channels=128),
        dict(
            type='ChannelMapper',
            in_channels=[128] * 4,
            kernel_size=1,
            out_channels=128,
            bias=True,
            act_cfg=None,
            norm_cfg=dict(type='GN', num_groups=32),
            num_outs=4,
        ),
    ],
    encoder=dict(
        num_layers=1,
        layer_cfg=dict(
            self_attn_cfg=dict(embed_dims=128, num_levels=4, dropout=0.0),
            ffn_cfg=dict(embed_dims=128, feedforward_channels=512, ffn_drop=0.0),
        ),
    ),
    decoder=dict(
        num_layers=3,
        return_intermediate=True,
        layer_cfg=dict(
            self_attn_cfg=dict(embed_dims=128, num_heads=8, dropout=0.0),
            cross_attn_cfg=dict(embed_dims=128, num_levels=4, dropout=0.0),
            ffn_cfg=dict(embed_dims=128, feedforward_channels=512, ffn_drop=0.0),
        ),
        post_norm_cfg=None,
    ),
    positional_encoding=dict(num_feats=64, normalize=True, offset=-0.5, temperature=10000),
    bbox_head=dict(
        type='DINOHead',
        num_classes=6,
        embed_dims=128,
        sync_cls_avg_factor=True,
        loss_cls=dict(type='FocalLoss', use_sigmoid=True, gamma=2.0, alpha=0.25, loss_weight=1.0),
        loss_bbox=dict(type='L1Loss', loss_weight=5.0),
        loss_iou=dict(type='GIoULoss', loss_weight=2.0),
    ),
    dn_cfg=dict(
        label_noise_scale=0.5,
        box_noise_scale=1.0,
        group_cfg=dict(dynamic=True, num_groups=None, num_dn_queries=30),
    ),
    train_cfg=dict(
        assigner=dict(
            type='HungarianAssigner',
            match_costs=[
                dict(type='FocalLossCost', weight=2.0),
                dict(type='BBoxL1Cost', weight=5.0, box_format='xywh'),
                dict(type='IoUCost', iou_mode='giou', weight=2.0),
            ],
        )
    ),
    test_cfg=dict(max_per_img=30),
)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='RandomFlip', prob=0.5),
    dict(type='Resize', scale=image_size, keep_ratio=True),
    dict(type='PackDetInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=image_size, keep_ratio=True),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(
        type='PackDetInputs',
        meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'),
    ),
]
train_dataloader = dict(
    batch_size=8,
    num_workers=0,
    persistent_workers=False,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(
        type='CocoDataset',
        data_root=data_root,
        metainfo=metainfo,
        ann_file='annotations/instances_train2017.json',
        data_prefix=dict(img='train2017/'),
        filter_cfg=dict(filter_empty_gt=True),
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=0,
    persistent_workers=False,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='CocoDataset',
        data_root=data_root,
        metainfo=metainfo,
        ann_file='annotations/instances_val2017.json',
        data_prefix=dict(img='val2017/'),
        test_mode=True,
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='CocoMetric', ann_file=data_root + 'annotations/instances_val2017.json', metric='bbox')
test_evaluator = val_evaluator
max_iters = 750
train_cfg = dict(type='IterBasedTrainLoop', max_iters=max_iters, val_interval=150)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=5e-4, weight_decay=1e-4),
    clip_grad=dict(max_norm=0.1, norm_type=2),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=50),
    dict(type='CosineAnnealingLR', by_epoch=False, begin=0, T_max=max_iters, eta_min=1e-6),
]
default_hooks = dict(
    timer=dict(type='IterTimerHook'),
    logger=dict(type='LoggerHook', interval=25),
    param_scheduler=dict(type='ParamSchedulerHook'),
    checkpoint=dict(type='CheckpointHook', interval=1000, by_epoch=False, max_keep_ckpts=1),
    sampler_seed=dict(type='DistSamplerSeedHook'),
)
log_processor = dict(by_epoch=False)
randomness = dict(seed=0)
