# DEIMv2-S: 132 epochs of 3696 iterations, 32 images each. The learning rate grows for 2000
# iterations, falls by a cosine from epoch 64 to one half in epoch 120 and stays; then training
# continues from the best checkpoint without augmentation. Norms and biases have no weight decay.
epoch = 3696
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=5e-4, betas=(0.9, 0.999), weight_decay=1e-4),
    clip_grad=dict(max_norm=0.1, norm_type=2),
    constructor='NamedGroupsConstructor',
    paramwise_cfg=dict(
        lr_mult={'backbone': 0.05}, no_decay=['norm', 'bias', 'frequency']
    ),
)
param_scheduler = [
    dict(type='QuadraticWarmupLR', by_epoch=False, begin=0, end=2000),
    dict(
        type='CosineAnnealingLR',
        by_epoch=False,
        eta_min_ratio=0.5,
        begin=64 * epoch,
        end=120 * epoch,
        T_max=56 * epoch,
    ),
]
train_cfg = dict(type='ResumableTrainLoop', max_iters=132 * epoch, val_interval=epoch)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
auto_scale_lr = dict(enable=False, base_batch_size=32)

custom_hooks = [
    dict(
        type='EMAHook',
        ema_type='ExpMomentumEMA',
        momentum=1e-4,
        gamma=1000,
        update_buffers=True,
    ),
    dict(type='BestRestartHook', epoch=120),
]
sync_bn = 'torch'
del epoch
