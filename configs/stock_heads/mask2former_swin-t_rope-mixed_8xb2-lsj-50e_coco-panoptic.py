# Mask2Former, panoptic segmentation, on Swin-T with RoPE-Mixed, COCO, 50 epochs. No paper reports
# this run; its accuracy was not measured: it is mmdet's config for Swin-T with another backbone.
# Frequencies have no weight decay (the rule of their pre-training).
_base_ = 'mmdet::mask2former/mask2former_r50_8xb2-lsj-50e_coco-panoptic.py'
custom_imports = dict(imports=['rope_dense'], allow_failed_imports=False)

model = dict(
    backbone=dict(
        _delete_=True,
        type='RoPESwin',
        arch='tiny',
        rope=dict(type='MixedRoPE', theta=10.0),
        window_size=7,
        drop_path_rate=0.3,
        out_indices=(0, 1, 2, 3),
        init_cfg=dict(
            type='Pretrained',
            checkpoint='hf-hub:naver-ai/swin_rope_mixed_tiny_patch4_window7_224',
        ),
    ),
    panoptic_head=dict(in_channels=[96, 192, 384, 768]),
)
optim_wrapper = dict(
    constructor='NamedGroupsConstructor',
    paramwise_cfg=dict(
        _delete_=True,
        lr_mult={'backbone': 0.1},
        no_decay=['norm', 'embedding', 'position', 'frequency'],
    ),
)
