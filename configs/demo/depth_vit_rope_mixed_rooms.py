# Depth from scratch on a CPU: a small ViT with CHMv2's DPT head, on generated rooms with true
# depth. Results: docs/depth.md.
# rope-dense research make-shapes data/rooms --layout depth --train 800 --val 50 --size 96 128
# rope-dense train configs/demo/depth_vit_rope_mixed_rooms.py
_base_ = '../_base_/mmseg_runtime.py'
custom_imports = dict(imports=['rope_dense', 'rope_dense.data.map_datasets'])

model = dict(
    type='DepthEstimator',
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        size=(96, 128),
        pad_val=0,
        seg_pad_val=0,
        test_cfg=dict(size_divisor=16),
    ),
    backbone=dict(
        type='RoPEViT',
        arch=dict(embed_dims=96, depth=4, num_heads=3),
        rope=dict(type='MixedRoPE', theta=10.0),
        use_ape=True,  # depth depends on the place in the image
        img_size=(96, 128),
        layer_scale_init_value=None,
        final_norm=True,
        out_indices=(0, 1, 2, 3),
        output_prefix='cls',
    ),
    decode_head=dict(
        type='DPTDepthHead',
        in_channels=96,
        channels=16,
        post_process_channels=[16, 16, 32, 32],
        hidden_channels=16,
        num_bins=32,
        min_depth=0.1,
        max_depth=12.0,
        align_corners=False,
        loss_decode=dict(type='BatchSiLogLoss', warm_up=20),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'),
)
tta_model = dict(type='MeanDepthTTAModel')

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadDepth', unit=0.001),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(128, 96), keep_ratio=True),
    dict(type='LoadDepth', unit=0.001),  # after Resize: it keeps its size
    dict(type='PackSegInputs'),
]
tta_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='TestTimeAug',
        transforms=[
            [dict(type='Resize', scale=(128, 96), keep_ratio=True)],
            [dict(type='RandomFlip', prob=0.0), dict(type='RandomFlip', prob=1.0)],
            [dict(type='LoadDepth', unit=0.001)],
            [dict(type='PackSegInputs')],
        ],
    ),
]
train_dataloader = dict(
    batch_size=8,
    num_workers=0,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(
        type='ImageDepthDataset',
        data_root='data/rooms/depth',
        data_prefix=dict(img_path='images/train', depth_map_path='depth/train'),
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=0,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='ImageDepthDataset',
        data_root='data/rooms/depth',
        data_prefix=dict(img_path='images/val', depth_map_path='depth/val'),
        test_mode=True,
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='ValidDepthMetric', min_depth_eval=0.001, max_depth_eval=12.0)
test_evaluator = val_evaluator

optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=2e-3, weight_decay=0.01),
    clip_grad=dict(max_norm=35),
)
param_scheduler = [
    dict(type='LinearLR', by_epoch=False, start_factor=0.01, begin=0, end=20),
    dict(type='CosineAnnealingLR', by_epoch=False, begin=20, end=1000),
]
train_cfg = dict(type='ResumableTrainLoop', max_iters=1000, val_interval=500)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
default_hooks = dict(
    checkpoint=dict(interval=500, max_keep_ckpts=1, save_best='rmse', rule='less')
)

del train_pipeline, test_pipeline  # an override of these keys would change nothing
