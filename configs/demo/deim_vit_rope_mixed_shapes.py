# A real-time detector of the size of ./dino_vitdet_rope_mixed_shapes.py on its data: the same ViT
# without windows, DEIMv2-S's adapter, encoder and decoder at 128 channels and 3 layers, 30 queries,
# from scratch on two CPU cores. Results: docs/realtime.md.
# rope-dense demo --config configs/demo/deim_vit_rope_mixed_shapes.py --work-dir work_dirs/deim
_base_ = './dino_vitdet_rope_mixed_shapes.py'

model = dict(
    _delete_=True,
    type='DEIM',
    data_preprocessor=dict(
        type='DetDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_size_divisor=32,
    ),
    backbone=dict(
        type='RoPEViT',
        arch=dict(embed_dims=192, depth=6, num_heads=3),
        rope=dict(type='MixedRoPE', theta=10.0),
        img_size=160,
        out_indices=(1, 3, 5),
        layer_scale_init_value=None,
    ),
    neck=dict(
        type='SpatialTuningAdapter', in_channels=192, stem_channels=16, out_channels=128
    ),
    encoder=dict(
        type='DEIMEncoder',
        in_channels=(128, 128, 128),
        embed_dims=128,
        feedforward_channels=512,
        num_blocks=2,
        expansion=0.34,
        num_heads=8,
        act='GELU',
    ),
    bbox_head=dict(
        type='DEIMHead',
        num_classes=6,
        embed_dims=128,
        num_queries=30,
        decoder=dict(
            num_layers=3,
            feedforward_channels=512,
            num_heads=8,
            num_points=(3, 6, 3),
            norm='rms',
            ffn='swiglu',
        ),
        denoising=dict(num_queries=30),
    ),
    test_cfg=dict(max_per_img=30),
)
optim_wrapper = dict(optimizer=dict(lr=1e-3))
param_scheduler = [
    dict(type='LinearLR', by_epoch=False, start_factor=0.01, begin=0, end=50),
    dict(type='CosineAnnealingLR', by_epoch=False, begin=0, T_max=920, eta_min=1e-6),
]
train_cfg = dict(
    max_iters=920, val_interval=230
)  # the CPU time of 700 iterations of DINO
default_hooks = dict(checkpoint=dict(interval=230))
