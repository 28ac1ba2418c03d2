# DINOv3's linear depth: 38400 iterations of 16 images, weight decay for every parameter. One cycle:
# a warm-up of 12800 iterations times a cosine that runs from the start. Its authors name betas 0.9
# and 0.99, but their scheduler sets the first: 0 in the warm-up, then from 0.85 to 0.95. Rates
# differ from theirs by less than 0.1 % of the full rate.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=3e-4, betas=(0.85, 0.99), weight_decay=1e-4),
    clip_grad=dict(max_norm=35),
    constructor='NamedGroupsConstructor',
    paramwise_cfg=dict(no_decay=[]),
)
param_scheduler = [
    dict(type='LinearLR', by_epoch=False, start_factor=0.001, begin=0, end=12801),
    dict(
        type='CosineAnnealingLR',
        by_epoch=False,
        T_max=38400,
        eta_min=1.2e-8,
        begin=0,
        end=38400,
    ),
    dict(type='ConstantMomentum', by_epoch=False, factor=1e-9, begin=0, end=12801),
    dict(
        type='CosineAnnealingMomentum',
        by_epoch=False,
        T_max=25600,
        eta_min=0.95,
        begin=12800,
        end=38400,
    ),
]

train_cfg = dict(type='ResumableTrainLoop', max_iters=38400, val_interval=1600)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
auto_scale_lr = dict(enable=False, base_batch_size=16)
