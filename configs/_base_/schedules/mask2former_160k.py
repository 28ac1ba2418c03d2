# Mask2Former on ADE20K: 160000 iterations of 16 images, polynomial descent without warm-up. The
# authors trained in fp16 (--amp).
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.05),
    clip_grad=dict(max_norm=0.01, norm_type=2),
    constructor='NamedGroupsConstructor',
    paramwise_cfg=dict(
        lr_mult={'backbone': 0.1},
        no_decay=['norm', 'embedding', 'position', 'frequency'],
    ),
)
param_scheduler = [
    dict(type='PolyLR', by_epoch=False, power=0.9, eta_min=0.0, begin=0, end=160000)
]

train_cfg = dict(type='ResumableTrainLoop', max_iters=160000, val_interval=5000)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
auto_scale_lr = dict(enable=False, base_batch_size=16)
