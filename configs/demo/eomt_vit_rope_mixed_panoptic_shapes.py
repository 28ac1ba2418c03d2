# EoMT for panoptic segmentation, from scratch on a CPU: six shapes as things, their background as
# stuff; 20 queries join the last 2 of 6 blocks. Results: docs/research/small_models.md.
# rope-dense research make-shapes data/segments --layout panoptic --train 1500 --size 128
# rope-dense train configs/demo/eomt_vit_rope_mixed_panoptic_shapes.py
_base_ = [
    '../_base_/models/eomt_coco.py',
    '../_base_/datasets/coco_panoptic_eomt.py',
    '../_base_/mmdet_runtime.py',
]
custom_imports = dict(imports=['rope_dense'])

classes = dict(num_things_classes=6, num_stuff_classes=1)
model = dict(
    backbone=dict(
        type='RoPEViT',
        arch=dict(embed_dims=192, depth=6, num_heads=3),
        rope=dict(type='MixedRoPE', theta=10.0),
        img_size=128,
        layer_scale_init_value=None,
        final_norm=True,
    ),
    panoptic_head=dict(
        in_channels=192,
        num_queries=20,
        num_blocks=2,
        loss_cls=dict(class_weight=[1.0] * 7 + [0.1]),
        **classes,
    ),
    panoptic_fusion_head=dict(**classes),
    train_cfg=dict(num_points=1024),
)

things = ('circle', 'square', 'triangle', 'star', 'cross', 'ring')
data = dict(
    data_root='data/segments/panoptic',
    metainfo=dict(
        classes=(*things, 'background'),
        thing_classes=things,
        stuff_classes=('background',),
    ),
)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadPanopticAnnotations'),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackDetInputs'),
]
train_dataloader = dict(
    batch_size=16,
    num_workers=0,
    persistent_workers=False,
    dataset=dict(pipeline=train_pipeline, **data),
)
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(128, 128), keep_ratio=True),
    dict(
        type='LoadPanopticAnnotations'
    ),  # after Resize: labels keep the original's size
    dict(
        type='PackDetInputs',
        meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'),
    ),
]
val_dataloader = dict(
    num_workers=0,
    persistent_workers=False,
    dataset=dict(pipeline=test_pipeline, **data),
)
test_dataloader = val_dataloader
labels = 'data/segments/panoptic/annotations/panoptic_val2017'
val_evaluator = dict(ann_file=f'{labels}.json', seg_prefix=f'{labels}/')
test_evaluator = val_evaluator
del classes, things, data, train_pipeline, test_pipeline, labels

optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=5e-4, weight_decay=0.05),
    clip_grad=dict(max_norm=1.0),
    constructor='NamedGroupsConstructor',
    paramwise_cfg=dict(no_decay=['one_dim', 'position', 'frequency']),
)
param_scheduler = [
    dict(type='LinearLR', by_epoch=False, start_factor=0.01, begin=0, end=50),
    dict(type='CosineAnnealingLR', by_epoch=False, begin=0, T_max=900, eta_min=1e-6),
]
train_cfg = dict(type='ResumableTrainLoop', max_iters=900, val_interval=450)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
custom_hooks = [dict(type='MaskAnnealingHook', start=[150, 375], end=[450, 675])]
default_hooks = dict(
    logger=dict(interval=25), checkpoint=dict(interval=450, max_keep_ckpts=1)
)
