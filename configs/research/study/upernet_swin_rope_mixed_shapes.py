# UperNet with a small Swin on generated shapes of 112 x 112 pixels, windows of 7 x 7 tokens, from
# scratch on a CPU, for docs/research/resolution_study; here with RoPE-Mixed.
# Data as for upernet_vit_rope_mixed_shapes.py.
_base_ = './upernet_vit_rope_mixed_shapes.py'

size = (112, 112)
model = dict(
    data_preprocessor=dict(size=size),
    backbone=dict(
        _delete_=True,
        type='RoPESwin',
        arch=dict(embed_dims=64, depths=(2, 2, 4), num_heads=(2, 4, 8)),
        rope=dict(type='MixedRoPE', theta=10.0),
        window_size=7,
        drop_path_rate=0.0,
        out_indices=(0, 1, 2),
    ),
    neck=None,
    decode_head=dict(in_channels=[64, 128, 256], in_index=[0, 1, 2]),
    auxiliary_head=dict(in_channels=256, in_index=2),
)

resize = dict(type='Resize', scale=size, keep_ratio=False, interpolation='area')
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    resize,
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    resize,
    dict(type='LoadAnnotations'),  # after Resize: labels keep the original's size
    dict(type='PackSegInputs'),
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
del size, resize, train_pipeline, test_pipeline
