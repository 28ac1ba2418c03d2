# UperNet after BEiT v2 with ImageNet-1k pre-training: layer-wise decay, warm-up and linear descent.
# Both schedulers act from the start, as in mmcv 1.x, used by the recipe. The authors trained
# in fp16 (--amp).
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=5e-5, betas=(0.9, 0.999), weight_decay=0.05),
    constructor='NamedGroupsConstructor',
    paramwise_cfg=dict(layer_decay=0.75, no_decay=['one_dim', 'position', 'frequency']),
)
param_scheduler = [
    dict(type='LinearLR', by_epoch=False, start_factor=1e-6, begin=0, end=1500),
    dict(type='PolyLR', by_epoch=False, power=1.0, eta_min=0.0, begin=0, end=160000),
]

train_cfg = dict(type='ResumableTrainLoop', max_iters=160000, val_interval=16000)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
auto_scale_lr = dict(enable=False, base_batch_size=16)
