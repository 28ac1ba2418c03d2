# The small ViT of the resolution study with a linear head, which trains in minutes on a CPU: for
# the figures of docs/research/positions.md.
_base_ = '../../../configs/research/study/upernet_vit_rope_mixed_shapes.py'

model = dict(
    backbone=dict(out_indices=(5,)),
    neck=None,
    decode_head=dict(
        _delete_=True,
        type='LinearHead',
        in_channels=192,
        in_index=0,
        num_classes=7,
        norm_cfg=dict(type='BN'),
        dropout_ratio=0.1,
    ),
    auxiliary_head=None,
)
train_dataloader = dict(batch_size=8)
param_scheduler = [
    dict(type='LinearLR', by_epoch=False, start_factor=0.01, begin=0, end=50),
    dict(type='CosineAnnealingLR', by_epoch=False, begin=0, T_max=300, eta_min=1e-6),
]
train_cfg = dict(max_iters=300, val_interval=300)
