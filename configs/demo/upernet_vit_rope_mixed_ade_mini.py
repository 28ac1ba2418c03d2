# The flagship UperNet with a ViT-S, from scratch, overfitting a few real images on a CPU: a check
# that the whole segmentor learns on real data. It trains and tests on the validation images of any
# folder in ADE20K layout:
# rope-dense train configs/demo/upernet_vit_rope_mixed_ade_mini.py --data-root FOLDER
_base_ = '../upernet_vit/upernet_vit-b_rope-mixed_8xb2-160k_ade20k-512x512.py'

model = dict(
    data_preprocessor=dict(size=(192, 256)),
    backbone=dict(
        arch='small',
        rope_scaling=dict(grid=(12, 16)),
        layer_scale_init_value=None,
        drop_path_rate=0.0,
        init_cfg=None,
    ),
    neck=dict(embed_dim=384),
    decode_head=dict(in_channels=[384, 384, 384, 384], channels=128, dropout_ratio=0.0),
    auxiliary_head=dict(in_channels=384, channels=64, dropout_ratio=0.0),
    test_cfg=dict(_delete_=True, mode='whole'),
)

resize = dict(type='Resize', scale=(256, 192), keep_ratio=False)
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
    batch_size=3,
    num_workers=0,
    persistent_workers=False,
    dataset=dict(
        data_root='data/ade_mini',
        data_prefix=dict(
            img_path='images/validation', seg_map_path='annotations/validation'
        ),
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    num_workers=0,
    persistent_workers=False,
    dataset=dict(data_root='data/ade_mini', pipeline=test_pipeline),
)
test_dataloader = val_dataloader
del resize, train_pipeline, test_pipeline

optim_wrapper = dict(
    optimizer=dict(lr=5e-4),
    paramwise_cfg=dict(
        _delete_=True, no_decay=['one_dim', 'frequency']
    ),  # no layer decay
)
param_scheduler = [
    dict(type='LinearLR', by_epoch=False, start_factor=0.01, begin=0, end=20),
    dict(type='PolyLR', by_epoch=False, power=1.0, eta_min=0.0, begin=0, end=200),
]
train_cfg = dict(max_iters=200, val_interval=100)
default_hooks = dict(
    logger=dict(interval=10), checkpoint=dict(interval=200, max_keep_ckpts=1)
)
