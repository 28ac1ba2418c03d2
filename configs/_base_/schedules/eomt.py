# EoMT's training: AdamW with weight decay for every parameter, the backbone frozen for 2000
# iterations while the rest warms up, then warming up for 3000; polynomial descent. The authors
# trained in fp16 (--amp). A config adds max_iters, the end of the schedule,
# paramwise_cfg with a path 'backbone', and the iterations of the annealing.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=2e-4, betas=(0.9, 0.999), weight_decay=0.05),
    clip_grad=dict(max_norm=0.01, norm_type=2),
    constructor='NamedGroupsConstructor',
)
train_cfg = dict(type='ResumableTrainLoop')
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
auto_scale_lr = dict(enable=False, base_batch_size=16)
