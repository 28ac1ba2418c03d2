# DINO, "12 epochs": 90000 iterations of 16 images, learning rate x 0.1 at 82500; no mixed
# precision. Biases, LayerScale and the pyramid's own norm keep their decay as in detrex;
# frequencies have none.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=1e-4),
    clip_grad=dict(max_norm=0.1, norm_type=2),
    constructor='NamedGroupsConstructor',
    paramwise_cfg=dict(lr_mult={'backbone': 0.1}, no_decay=['norm', 'frequency']),
)
param_scheduler = [
    dict(type='MultiStepLR', by_epoch=False, milestones=[82500], gamma=0.1)
]

train_cfg = dict(type='ResumableTrainLoop', max_iters=90000, val_interval=5000)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
auto_scale_lr = dict(enable=False, base_batch_size=16)
