# A backbone trained on pictures without labels, 224 pixels, 32 images: DIET's classifier of
# pictures (arXiv 2302.10260, 2509.06990), for configs/own/adapt.py. The papers' learning rates were
# not seen; this one is of fine-tuning.
_base_ = 'mmseg_runtime.py'
custom_imports = dict(
    imports=['rope_dense', 'rope_dense.data.unlabelled'], allow_failed_imports=False
)

model = dict(
    type='PictureClassifier',
    num_pictures=1,
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        bgr_to_rgb=True,
        size=(224, 224),
        pad_val=0,
        seg_pad_val=255,
    ),
    backbone=dict(type='RoPEViT', arch='lingbot_small', output_prefix='cls'),
)

keys = ('img_path', 'ori_shape', 'img_shape', 'number')  # of an image, for the model
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='RandomResize', scale=(896, 224), ratio_range=(1.0, 2.0), keep_ratio=True
    ),
    dict(type='RandomCrop', crop_size=(224, 224)),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs', meta_keys=keys),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(896, 224), keep_ratio=True),
    dict(type='CenterCrop', crop_size=(224, 224), auto_pad=True),
    dict(type='PackSegInputs', meta_keys=keys),
]
dataset = dict(type='UnlabelledDataset', data_root='data/own')
train_dataloader = dict(
    batch_size=32,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(dataset, pipeline=train_pipeline),
)
val_dataloader = dict(
    batch_size=32,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(dataset, pipeline=test_pipeline),
)
test_dataloader = val_dataloader
val_evaluator = test_evaluator = dict(type='FeatureMetric')

optim_wrapper = dict(
    type='OptimWrapper', optimizer=dict(type='AdamW', lr=1e-4, weight_decay=0.05)
)
param_scheduler = [
    dict(type='CosineAnnealingLR', by_epoch=False, T_max=1000, begin=0, end=1000)
]
train_cfg = dict(
    type='ResumableTrainLoop', max_iters=1000, val_begin=0, val_interval=1000
)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')

del (
    dataset,
    keys,
    train_pipeline,
    test_pipeline,
)  # an override of these would change nothing
