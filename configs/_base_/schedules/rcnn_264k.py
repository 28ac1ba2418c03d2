# "3x": 36 epochs of 7330 iterations of 16 images, learning rate x 0.1 after 27 and 33 of them. Only
# norms of the backbone (by name), bias tables and learned frequencies (absent in the sources) have
# no weight decay. The authors trained in fp16 (--amp).
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.05),
    paramwise_cfg=dict(
        custom_keys={
            'relative_position_bias_table': dict(decay_mult=0.0),
            'norm': dict(decay_mult=0.0),
            'freqs': dict(decay_mult=0.0),
        }
    ),
)
param_scheduler = [
    dict(type='LinearLR', by_epoch=False, start_factor=0.001, begin=0, end=500),
    dict(type='MultiStepLR', by_epoch=False, milestones=[197910, 241890], gamma=0.1),
]

train_cfg = dict(type='ResumableTrainLoop', max_iters=263880, val_interval=7330)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
auto_scale_lr = dict(enable=False, base_batch_size=16)
