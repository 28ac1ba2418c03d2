# A real-time DETR with the sizes of DEIMv2-S. A config adds the weights of the backbone.
model = dict(
    type='DEIM',
    data_preprocessor=dict(
        type='DetDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_size_divisor=32,
        batch_augments=[
            dict(
                type='MixUpCopyBlend',
                mixup_prob=0.5,
                mixup_epochs=(4, 64),
                copyblend_prob=0.5,
                copyblend_epochs=(4, 120),
                ratio=(0.45, 0.55),
                min_area=100,
                num_objects=3,
                margin=(0.1, 0.25),
            ),
            dict(type='MultiScaleBatch', base=640, repeat=20, epochs=(0, 120)),
        ],
    ),
    backbone=dict(type='RoPEViT', arch='deimv2_tiny', out_indices=(3, 7, 11)),
    neck=dict(
        type='SpatialTuningAdapter', in_channels=192, stem_channels=16, out_channels=192
    ),
    encoder=dict(
        type='DEIMEncoder',
        in_channels=(192, 192, 192),
        embed_dims=192,
        feedforward_channels=512,
        num_blocks=2,
        expansion=0.34,
        num_heads=8,
        act='GELU',
    ),
    bbox_head=dict(
        type='DEIMHead',
        num_classes=80,
        embed_dims=192,
        num_queries=300,
        decoder=dict(
            num_layers=4,
            feedforward_channels=512,
            num_heads=8,
            num_points=(3, 6, 3),
            eval_idx=-1,
            norm='rms',
            ffn='swiglu',
            reg_max=32,
            reg_scale=4.0,
            up=0.5,
        ),
        denoising=dict(num_queries=100, label_noise=0.5, box_noise=1.0),
        matching=dict(
            class_cost=2.0, bbox_cost=5.0, giou_cost=2.0, late_epoch=100, iou_power=4.0
        ),
        loss_weights=dict(mal=1.0, bbox=5.0, giou=2.0, fgl=0.15, ddf=1.5),
        mal_gamma=1.5,
    ),
    test_cfg=dict(max_per_img=300),
)
tta_model = dict(
    type='DetTTAModel',
    tta_cfg=dict(nms=dict(type='nms', iou_threshold=0.7), max_per_img=300),
)
