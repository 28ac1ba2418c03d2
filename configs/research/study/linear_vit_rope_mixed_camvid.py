# A small plain ViT with a linear decoder on street scenes of 160 x 120 pixels (16 x 12 patches of
# 10), from scratch on a CPU, for docs/research/scaling_study; here with RoPE-Mixed. A linear
# decoder sees one token at a time: all context comes from attention. Sides of 0.5, 1, 1.5, 2 and 3
# times this size are whole numbers of patches.
# Data: CamVid at 320 x 240, 11 classes, 255 is ignored, in the folders of ADE20K.
# rope-dense train configs/research/study/linear_vit_rope_mixed_camvid.py --data-root FOLDER
_base_ = ['../../_base_/schedules/upernet_160k.py', '../../_base_/mmseg_runtime.py']

size = (120, 160)  # height, width
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        size=size,
        pad_val=0,
        seg_pad_val=255,
    ),
    backbone=dict(
        type='RoPEViT',
        arch=dict(embed_dims=96, depth=4, num_heads=3),
        img_size=size,
        patch_size=10,
        rope=dict(type='MixedRoPE', theta=10.0),
        with_cls_token=False,
        layer_scale_init_value=None,
        final_norm=True,
    ),
    decode_head=dict(
        type='FCNHead',
        in_channels=96,
        channels=96,
        num_convs=0,
        concat_input=False,
        dropout_ratio=0.0,
        num_classes=11,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'),
)

metainfo = dict(
    classes=(
        'Sky',
        'Building',
        'Pole',
        'Road',
        'Pavement',
        'Tree',
        'SignSymbol',
        'Fence',
        'Car',
        'Pedestrian',
        'Bicyclist',
    ),
    palette=[
        (128, 128, 128),
        (128, 0, 0),
        (192, 192, 128),
        (128, 64, 128),
        (60, 40, 222),
        (128, 128, 0),
        (192, 128, 128),
        (64, 64, 128),
        (64, 0, 128),
        (64, 64, 0),
        (0, 128, 192),
    ],
)
data = dict(
    type='BaseSegDataset',
    data_root='data/camvid_mini',
    img_suffix='.jpg',
    seg_map_suffix='.png',
    metainfo=metainfo,
)
resize = dict(type='Resize', scale=size[::-1], keep_ratio=False, interpolation='area')
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    resize,
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    resize,
    dict(type='LoadAnnotations'),  # after Resize: labels keep the original's size
    dict(type='PackSegInputs'),
]
train_dataloader = dict(
    batch_size=8,
    num_workers=0,
    persistent_workers=False,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(
        data_prefix=dict(
            img_path='images/training', seg_map_path='annotations/training'
        ),
        pipeline=train_pipeline,
        **data,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=0,
    persistent_workers=False,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        data_prefix=dict(
            img_path='images/validation', seg_map_path='annotations/validation'
        ),
        pipeline=test_pipeline,
        **data,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='IoUMetric', iou_metrics=['mIoU'])
test_evaluator = val_evaluator
del size, metainfo, data, resize, train_pipeline, test_pipeline

optim_wrapper = dict(
    optimizer=dict(lr=1e-3),
    clip_grad=dict(max_norm=1.0),
    paramwise_cfg=dict(_delete_=True, no_decay=['one_dim', 'position', 'frequency']),
)
param_scheduler = [
    dict(type='LinearLR', by_epoch=False, start_factor=0.01, begin=0, end=40),
    dict(type='CosineAnnealingLR', by_epoch=False, begin=0, T_max=400, eta_min=1e-6),
]
train_cfg = dict(max_iters=400, val_interval=400)
default_hooks = dict(
    logger=dict(interval=50), checkpoint=dict(interval=400, max_keep_ckpts=1)
)
