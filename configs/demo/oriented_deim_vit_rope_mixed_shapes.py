# DEIM with an angle on generated rotated shapes, from scratch in ten minutes of a CPU core: half of
# the channels of ./deim_vit_rope_mixed_shapes.py, two decoder layers, ViT patches of 8 pixels. Two
# configs for comparison have the same ViT, data and CPU time. Results: docs/oriented.md.
# rope-dense research make-shapes data/rotated_shapes --layout dota --size 96 --train 2000 --val 200
# rope-dense train configs/demo/oriented_deim_vit_rope_mixed_shapes.py
_base_ = [
    '../_base_/datasets/rotated_shapes.py',
    '../_base_/schedules/rotated_shapes.py',
    '../_base_/mmdet_runtime.py',
]
custom_imports = dict(imports=['rope_dense', 'rope_dense.models.mmrotate'])
default_scope = 'mmrotate'

model = dict(
    type='DEIM',
    data_preprocessor=dict(
        type='mmdet.DetDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_size_divisor=32,
        boxtype2tensor=False,
    ),
    backbone=dict(
        type='RoPEViT',
        arch=dict(embed_dims=96, depth=4, num_heads=3, patch_size=8),
        rope=dict(type='MixedRoPE', theta=10.0),
        img_size=96,
        out_indices=(1, 2, 3),
        layer_scale_init_value=None,
    ),
    neck=dict(
        type='SpatialTuningAdapter', in_channels=96, stem_channels=16, out_channels=64
    ),
    encoder=dict(
        type='DEIMEncoder',
        in_channels=(64, 64, 64),
        embed_dims=64,
        feedforward_channels=256,
        num_blocks=1,
        expansion=0.34,
        num_heads=4,
        act='GELU',
    ),
    bbox_head=dict(
        type='OrientedDEIMHead',
        num_classes=4,
        embed_dims=64,
        num_queries=20,
        decoder=dict(
            num_layers=2,
            feedforward_channels=256,
            num_heads=4,
            num_points=(3, 6, 3),
            norm='rms',
            ffn='swiglu',
        ),
        denoising=None,  # in so short a training, more iterations gain more
        mal_gamma=0.5,  # 1.5 suppresses duplicates more slowly
    ),
    test_cfg=dict(max_per_img=20),
)
visualizer = dict(type='RotLocalVisualizer')
default_hooks = dict(
    visualization=dict(type='mmdet.DetVisualizationHook'), logger=dict(interval=25)
)
