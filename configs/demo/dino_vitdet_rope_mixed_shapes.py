# The flagship DINO-ViTDet at a size that learns generated shapes from scratch on two CPU cores:
# a ViT of 6 blocks, DINO of 1 + 3 layers, 128 channels and 30 queries.
# rope-dense demo --config configs/demo/dino_vitdet_rope_mixed_shapes.py --goal 0.4
_base_ = '../dino_vitdet/dino-vitdet_vit-b_rope-mixed_8xb2-90k_coco.py'

# The images that rope-dense demo generates (rope_dense.data.ShapesSettings).
shapes = dict(train=2000, val=100, size=(160, 160), seed=0, colors='class')

model = dict(
    num_queries=30,
    backbone=dict(
        arch=dict(_delete_=True, embed_dims=192, depth=6, num_heads=3),
        rope_scaling=dict(grid=(10, 10)),
        window_size=5,
        window_block_indexes=(0, 1, 3, 4),
        layer_scale_init_value=None,
        drop_path_rate=0.0,
        init_cfg=None,
    ),
    neck=[
        dict(type='PlainViTFPN', in_channels=192, out_channels=128),
        dict(
            type='ChannelMapper',
            in_channels=[128, 128, 128, 128],
            kernel_size=1,
            out_channels=128,
            bias=True,
            act_cfg=None,
            norm_cfg=dict(type='GN', num_groups=32),
            num_outs=4,
        ),
    ],
    encoder=dict(
        num_layers=1,
        layer_cfg=dict(
            self_attn_cfg=dict(embed_dims=128),
            ffn_cfg=dict(embed_dims=128, feedforward_channels=512),
        ),
    ),
    decoder=dict(
        num_layers=3,
        layer_cfg=dict(
            self_attn_cfg=dict(embed_dims=128),
            cross_attn_cfg=dict(embed_dims=128),
            ffn_cfg=dict(embed_dims=128, feedforward_channels=512),
        ),
    ),
    positional_encoding=dict(num_feats=64),
    bbox_head=dict(num_classes=6, embed_dims=128),
    dn_cfg=dict(group_cfg=dict(num_dn_queries=30)),
    test_cfg=dict(max_per_img=30),
)

metainfo = dict(classes=('circle', 'square', 'triangle', 'star', 'cross', 'ring'))
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackDetInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(160, 160), keep_ratio=True),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(
        type='PackDetInputs',
        meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'),
    ),
]
train_dataloader = dict(
    batch_size=8,
    num_workers=0,
    persistent_workers=False,
    dataset=dict(
        data_root='work_dirs/demo/data/coco/',
        metainfo=metainfo,
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    num_workers=0,
    persistent_workers=False,
    dataset=dict(
        data_root='work_dirs/demo/data/coco/', metainfo=metainfo, pipeline=test_pipeline
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(
    ann_file='work_dirs/demo/data/coco/annotations/instances_val2017.json'
)
test_evaluator = val_evaluator
del metainfo, train_pipeline, test_pipeline

optim_wrapper = dict(
    optimizer=dict(lr=5e-4),
    paramwise_cfg=dict(
        _delete_=True, no_decay=['norm', 'frequency']
    ),  # all train from scratch
)
param_scheduler = [
    dict(type='LinearLR', by_epoch=False, start_factor=0.01, begin=0, end=50),
    dict(type='CosineAnnealingLR', by_epoch=False, begin=0, T_max=700, eta_min=1e-6),
]
train_cfg = dict(max_iters=700, val_interval=175)
default_hooks = dict(
    logger=dict(interval=25), checkpoint=dict(interval=175, max_keep_ckpts=1)
)
