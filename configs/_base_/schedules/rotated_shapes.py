# From scratch in about ten minutes of a CPU core.
iterations = 2225
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=2e-3, betas=(0.9, 0.999), weight_decay=1e-4),
    clip_grad=dict(max_norm=0.1, norm_type=2),
    constructor='NamedGroupsConstructor',
    paramwise_cfg=dict(no_decay=['norm', 'frequency']),
)
param_scheduler = [
    dict(type='LinearLR', by_epoch=False, start_factor=0.01, begin=0, end=50),
    dict(
        type='CosineAnnealingLR',
        by_epoch=False,
        begin=0,
        T_max=iterations,
        eta_min=1e-6,
    ),
]
train_cfg = dict(
    type='ResumableTrainLoop', max_iters=iterations, val_interval=iterations
)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
del iterations
