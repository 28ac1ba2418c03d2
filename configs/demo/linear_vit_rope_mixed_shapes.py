# A linear classifier on the same frozen encoder as pmt_vit_rope_mixed_shapes.py, for comparison.
_base_ = '../research/study/upernet_vit_rope_mixed_shapes.py'

model = dict(
    backbone=dict(
        frozen_stages='all',
        final_norm=True,
        out_indices=(5,),
        init_cfg=dict(
            _delete_=True,
            type='Pretrained',
            checkpoint='work_dirs/encoder/iter_300.pth',
        ),
    ),
    neck=None,
    decode_head=dict(
        _delete_=True,
        type='LinearHead',
        in_channels=192,
        num_classes=7,
        norm_cfg=dict(type='BN'),
        dropout_ratio=0.1,
    ),
    auxiliary_head=None,
)
train_dataloader = dict(batch_size=8)
param_scheduler = [
    dict(type='LinearLR', by_epoch=False, start_factor=0.01, begin=0, end=20),
    dict(type='CosineAnnealingLR', by_epoch=False, begin=0, T_max=150, eta_min=1e-6),
]
train_cfg = dict(max_iters=150, val_interval=150)
