# The flagship Mask2Former with a Swin-T, from scratch on a few real images on a CPU: a check that
# the whole segmentor learns on real data. It trains and tests on the validation images of any
# folder in ADE20K layout:
# rope-dense train configs/demo/mask2former_swin_rope_mixed_ade_mini.py --data-root FOLDER
_base_ = '../mask2former_swin/mask2former_swin-s_rope-mixed_8xb2-160k_ade20k-512x512.py'

model = dict(
    data_preprocessor=dict(size=(192, 256)),
    backbone=dict(arch='tiny', drop_path_rate=0.0, init_cfg=None),
)

resize = dict(type='Resize', scale=(256, 192), keep_ratio=False)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    resize,
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackSegInputs'),
]
subset_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    resize,
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    resize,
    dict(type='LoadAnnotations'),  # after Resize: labels keep the original's size
    dict(type='PackSegInputs'),
]
images = dict(
    data_root='data/ade_mini',
    data_prefix=dict(
        img_path='images/validation', seg_map_path='annotations/validation'
    ),
)
train_dataloader = dict(
    batch_size=1,
    num_workers=0,
    persistent_workers=False,
    dataset=dict(pipeline=train_pipeline, **images),
)
val_dataloader = dict(
    num_workers=0,
    persistent_workers=False,
    dataset=dict(pipeline=test_pipeline, **images),
)
test_dataloader = val_dataloader
custom_imports = dict(imports=['rope_dense', 'research.subset_loss'])
custom_hooks = [
    dict(
        type='SubsetLossHook',
        dataset=dict(type='ADE20KDataset', pipeline=subset_pipeline, **images),
    )
]
del resize, train_pipeline, subset_pipeline, test_pipeline, images

optim_wrapper = dict(
    paramwise_cfg=dict(
        _delete_=True, no_decay=['norm', 'embedding', 'position', 'frequency']
    )
)
param_scheduler = [
    dict(type='LinearLR', by_epoch=False, start_factor=0.1, begin=0, end=10)
]
train_cfg = dict(max_iters=50, val_interval=50)
default_hooks = dict(
    logger=dict(interval=5), checkpoint=dict(interval=50, max_keep_ckpts=1)
)
