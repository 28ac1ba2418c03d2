# UperNet with a small plain ViT on generated shapes of 128 x 128 pixels (8 x 8 patches), from
# scratch on a CPU, for the study of other resolutions (docs/research/resolution_study); here with
# RoPE-Mixed. Pictures have 384 pixels, so that no size up to 3 times the training size is enlarged.
# rope-dense research make-shapes data/study --layout ade --train 1500 --val 100 --size 384
# rope-dense train configs/research/study/upernet_vit_rope_mixed_shapes.py
_base_ = '../../upernet_vit/upernet_vit-b_rope-mixed_8xb2-160k_ade20k-512x512.py'

norm_cfg = dict(type='BN')
model = dict(
    data_preprocessor=dict(size=(128, 128)),
    backbone=dict(
        arch=dict(_delete_=True, embed_dims=192, depth=6, num_heads=3),
        rope_scaling=dict(grid=(8, 8)),
        img_size=128,
        patch_size=16,
        out_indices=(1, 2, 3, 5),
        layer_scale_init_value=None,
        drop_path_rate=0.0,
        init_cfg=None,
    ),
    neck=dict(embed_dim=192, norm_cfg=norm_cfg),
    decode_head=dict(
        in_channels=[192, 192, 192, 192], channels=64, num_classes=7, norm_cfg=norm_cfg
    ),
    auxiliary_head=dict(in_channels=192, channels=32, num_classes=7, norm_cfg=norm_cfg),
    test_cfg=dict(_delete_=True, mode='whole'),
)

metainfo = dict(
    classes=('background', 'circle', 'square', 'triangle', 'star', 'cross', 'ring'),
    palette=[
        (90, 90, 90),
        (231, 111, 81),
        (244, 185, 66),
        (88, 171, 96),
        (38, 157, 178),
        (84, 105, 212),
        (190, 92, 184),
    ],
)
data = dict(
    type='BaseSegDataset',
    data_root='data/study/ade',
    img_suffix='.jpg',
    seg_map_suffix='.png',
    metainfo=metainfo,
    reduce_zero_label=True,
)
resize = dict(type='Resize', scale=(128, 128), keep_ratio=False, interpolation='area')
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
    batch_size=16,
    num_workers=0,
    persistent_workers=False,
    dataset=dict(pipeline=train_pipeline, **data),
)
val_dataloader = dict(
    num_workers=0,
    persistent_workers=False,
    dataset=dict(pipeline=test_pipeline, **data),
)
test_dataloader = val_dataloader
del norm_cfg, metainfo, data, resize, train_pipeline, test_pipeline

optim_wrapper = dict(
    optimizer=dict(lr=1e-3),
    clip_grad=dict(max_norm=1.0),
    paramwise_cfg=dict(_delete_=True, no_decay=['one_dim', 'position', 'frequency']),
)
param_scheduler = [
    dict(type='LinearLR', by_epoch=False, start_factor=0.01, begin=0, end=50),
    dict(type='CosineAnnealingLR', by_epoch=False, begin=0, T_max=600, eta_min=1e-6),
]
train_cfg = dict(max_iters=600, val_interval=300)
default_hooks = dict(
    logger=dict(interval=25), checkpoint=dict(interval=300, max_keep_ckpts=1)
)
