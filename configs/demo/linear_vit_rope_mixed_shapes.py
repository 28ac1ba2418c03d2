# A linear classifier on the same frozen encoder as pmt_vit_rope_mixed_shapes.py, for comparison.
_base_ = './pmt_vit_rope_mixed_shapes.py'

model = dict(
    type='EncoderDecoder',
    backbone=dict(out_indices=(5,)),
    decode_head=dict(
        _delete_=True,
        type='LinearHead',
        in_channels=192,
        num_classes=7,
        norm_cfg=dict(type='BN'),
        dropout_ratio=0.1,
    ),
)
optim_wrapper = dict(optimizer=dict(lr=1e-3))
custom_hooks = []
