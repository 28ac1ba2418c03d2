# DINOv3's linear segmentation: 40000 iterations of 16 images, weight decay for every parameter, no
# clipping, no mixed precision. For 1500 iterations the warm-up multiplies the cosine descent to
# zero; the authors' warm-up is linear, so their rate is lower there, by 3.6 % of the full rate at
# most, and equal afterwards.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-3, betas=(0.9, 0.999), weight_decay=1e-3),
    constructor='NamedGroupsConstructor',
    paramwise_cfg=dict(no_decay=[]),
)
param_scheduler = [
    dict(type='LinearLR', by_epoch=False, start_factor=1e-6, begin=0, end=1500),
    dict(
        type='CosineAnnealingLR',
        by_epoch=False,
        T_max=40000,
        eta_min=0.0,
        begin=0,
        end=40000,
    ),
]

train_cfg = dict(type='ResumableTrainLoop', max_iters=40000, val_interval=5000)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
auto_scale_lr = dict(enable=False, base_batch_size=16)
