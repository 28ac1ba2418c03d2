# RetinaNet with an FPN on Swin-T with RoPE-Mixed, COCO, 12 epochs. No paper reports this run; its
# accuracy was not measured: it is mmdet's config for ResNet-50 with another backbone, and AdamW at
# the learning rate and weight decay of mmdet's Mask R-CNN on Swin.
_base_ = 'mmdet::retinanet/retinanet_r50_fpn_1x_coco.py'
custom_imports = dict(imports=['rope_dense'], allow_failed_imports=False)

model = dict(
    backbone=dict(
        _delete_=True,
        type='RoPESwin',
        arch='tiny',
        rope=dict(type='MixedRoPE', theta=10.0),
        window_size=7,
        drop_path_rate=0.2,
        out_indices=(1, 2, 3),
        init_cfg=dict(
            type='Pretrained',
            checkpoint='hf-hub:naver-ai/swin_rope_mixed_tiny_patch4_window7_224',
        ),
    ),
    neck=dict(in_channels=[192, 384, 768], start_level=0),
)
optim_wrapper = dict(
    optimizer=dict(
        _delete_=True, type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.05
    ),
    constructor='NamedGroupsConstructor',
    paramwise_cfg=dict(no_decay=['norm', 'position', 'frequency']),
)
