# The flagship DINO-ViTDet with a ViT-S, from scratch on a few real images on a CPU: a check that
# the whole detector learns on real data, not a way to train one. Any folder in COCO layout:
# rope-dense train configs/demo/dino_vitdet_rope_mixed_coco_mini.py --data-root FOLDER
_base_ = '../dino_vitdet/dino-vitdet_vit-b_rope-mixed_8xb2-90k_coco.py'

model = dict(
    num_queries=300,
    backbone=dict(
        arch='small',
        rope_scaling=dict(grid=(10, 14)),
        layer_scale_init_value=None,
        drop_path_rate=0.0,
        init_cfg=None,
    ),
    neck=[
        dict(type='PlainViTFPN', in_channels=384, out_channels=256),
        dict(
            type='ChannelMapper',
            in_channels=[256, 256, 256, 256],
            kernel_size=1,
            out_channels=256,
            bias=True,
            act_cfg=None,
            norm_cfg=dict(type='GN', num_groups=32),
            num_outs=4,
        ),
    ],
)

resize = dict(type='Resize', scale=(224, 160), keep_ratio=True)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True),
    resize,
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackDetInputs'),
]
subset_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True),
    resize,
    dict(type='PackDetInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    resize,
    dict(
        type='LoadAnnotations', with_bbox=True
    ),  # after Resize: boxes in the original's pixels
    dict(
        type='PackDetInputs',
        meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'),
    ),
]
train_dataloader = dict(
    batch_size=2,
    num_workers=0,
    persistent_workers=False,
    dataset=dict(data_root='data/coco_mini/', pipeline=train_pipeline),
)
val_dataloader = dict(
    num_workers=0,
    persistent_workers=False,
    dataset=dict(data_root='data/coco_mini/', pipeline=test_pipeline),
)
test_dataloader = val_dataloader
val_evaluator = dict(ann_file='data/coco_mini/annotations/instances_val2017.json')
test_evaluator = val_evaluator

subset = dict(
    type='CocoDataset',
    data_root='data/coco_mini/',
    ann_file='annotations/instances_train2017.json',
    data_prefix=dict(img='train2017/'),
    filter_cfg=dict(filter_empty_gt=True, min_size=32),
    indices=8,
    pipeline=subset_pipeline,
)
custom_imports = dict(imports=['rope_dense', 'research.subset_loss'])
custom_hooks = [dict(type='SubsetLossHook', dataset=subset)]
del resize, train_pipeline, subset_pipeline, test_pipeline, subset

optim_wrapper = dict(
    optimizer=dict(lr=4e-4),
    paramwise_cfg=dict(
        _delete_=True, no_decay=['norm', 'frequency']
    ),  # all train from scratch
)
param_scheduler = [
    dict(type='LinearLR', by_epoch=False, start_factor=0.01, begin=0, end=20),
    dict(type='CosineAnnealingLR', by_epoch=False, begin=0, T_max=200, eta_min=1e-6),
]
train_cfg = dict(max_iters=200, val_interval=200)
default_hooks = dict(
    logger=dict(interval=10), checkpoint=dict(interval=200, max_keep_ckpts=1)
)
