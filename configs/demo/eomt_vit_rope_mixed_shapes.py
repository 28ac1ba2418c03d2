# EoMT on the small ViT, the data and the iterations of upernet_vit_rope_mixed_shapes.py, from
# scratch on a CPU: 20 queries join the last 2 of 6 blocks. Results: docs/eomt.md.
# rope-dense research make-shapes data/study --layout ade --train 1500 --val 100 --size 384
# rope-dense train configs/demo/eomt_vit_rope_mixed_shapes.py
_base_ = '../research/study/upernet_vit_rope_mixed_shapes.py'

model = dict(
    _delete_=True,
    type='EoMTSegmentor',
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        size=(128, 128),
        pad_val=0,
        seg_pad_val=255,
        test_cfg=dict(size_divisor=16),
    ),
    backbone=dict(
        type='RoPEViT',
        arch=dict(embed_dims=192, depth=6, num_heads=3),
        rope=dict(type='MixedRoPE', theta=10.0),
        img_size=128,
        layer_scale_init_value=None,
        final_norm=True,
    ),
    decode_head=dict(
        type='EoMTSegHead',
        in_channels=192,
        num_classes=7,
        num_queries=20,
        num_blocks=2,
        loss_cls=dict(
            type='mmdet.CrossEntropyLoss',
            use_sigmoid=False,
            loss_weight=2.0,
            reduction='mean',
            class_weight=[1.0] * 7 + [0.1],
        ),
        loss_mask=dict(
            type='mmdet.CrossEntropyLoss',
            use_sigmoid=True,
            reduction='mean',
            loss_weight=5.0,
        ),
        loss_dice=dict(
            type='mmdet.DiceLoss',
            use_sigmoid=True,
            activate=True,
            reduction='mean',
            naive_dice=True,
            eps=1.0,
            loss_weight=5.0,
        ),
        train_cfg=dict(
            num_points=1024,
            oversample_ratio=3.0,
            importance_sample_ratio=0.75,
            assigner=dict(
                type='mmdet.HungarianAssigner',
                match_costs=[
                    dict(type='mmdet.ClassificationCost', weight=2.0),
                    dict(
                        type='mmdet.CrossEntropyLossCost', weight=5.0, use_sigmoid=True
                    ),
                    dict(type='mmdet.DiceCost', weight=5.0, pred_act=True, eps=1.0),
                ],
            ),
            sampler=dict(type='mmdet.MaskPseudoSampler'),
        ),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'),
)
tta_model = dict(type='MeanScoreTTAModel')

optim_wrapper = dict(optimizer=dict(lr=5e-4))
custom_hooks = [dict(type='MaskAnnealingHook', start=[100, 250], end=[300, 450])]
