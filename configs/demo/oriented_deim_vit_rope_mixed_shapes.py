# DEIM with an angle on generated rotated shapes, from scratch on a CPU in minutes: the decoder and
# encoder of ./deim_vit_rope_mixed_shapes.py, a ViT with patches of 8 pixels. The two configs beside
# it, for comparison, have the same ViT and data. Results: docs/oriented.md.
# python tools/make_shapes.py data/rotated_shapes --layout dota --size 96 --train 2000 --val 200
# python tools/train.py configs/demo/oriented_deim_vit_rope_mixed_shapes.py
_base_ = [
    '../_base_/datasets/rotated_shapes.py',
    '../_base_/schedules/rotated_shapes.py',
    '../_base_/mmdet_runtime.py',
]
custom_imports = dict(imports=['rope_dense', 'rope_dense.integrations.mmrotate'])
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
        arch=dict(embed_dims=192, depth=6, num_heads=3, patch_size=8),
        rope=dict(type='MixedRoPE', theta=10.0),
        img_size=96,
        out_indices=(1, 3, 5),
        layer_scale_init_value=None,
    ),
    neck=dict(type='SpatialTuningAdapter', in_channels=192, stem_channels=16, out_channels=128),
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
        type='OrientedDEIMHead',
        num_classes=4,
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
visualizer = dict(type='RotLocalVisualizer')
default_hooks = dict(
    visualization=dict(type='mmdet.DetVisualizationHook'), logger=dict(interval=25)
)
