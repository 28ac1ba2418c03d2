# DDQ-DETR with 4 scales on Swin-T with RoPE-Mixed, COCO, 12 epochs. No paper reports this run; its
# accuracy was not measured: it is mmdet's config for ResNet-50 with another backbone. Frequencies
# have no weight decay (the rule of their pre-training), all other parameters do, as there.
_base_ = 'mmdet::ddq/ddq-detr-4scale_r50_8xb2-12e_coco.py'
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
    neck=dict(in_channels=[192, 384, 768]),
)
optim_wrapper = dict(
    constructor='NamedGroupsConstructor',
    paramwise_cfg=dict(
        _delete_=True, lr_mult={'backbone': 0.1}, no_decay=['frequency']
    ),
)
