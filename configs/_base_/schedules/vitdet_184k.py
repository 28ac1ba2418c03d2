# ViTDet, "100 epochs": 184375 iterations of 64 images, learning rate x 0.1 at 163889 and 177546,
# layer-wise decay of the learning rate. The authors trained in fp16 (--amp).
# Frequencies have no weight decay (the rule of their pre-training).
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.1),
    constructor='NamedGroupsConstructor',
    paramwise_cfg=dict(layer_decay=0.7, no_decay=['norm', 'position', 'frequency']),
)
param_scheduler = [
    dict(type='LinearLR', by_epoch=False, start_factor=0.001, begin=0, end=250),
    dict(type='MultiStepLR', by_epoch=False, milestones=[163889, 177546], gamma=0.1),
]

train_cfg = dict(type='ResumableTrainLoop', max_iters=184375, val_interval=5000)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
auto_scale_lr = dict(enable=False, base_batch_size=64)
