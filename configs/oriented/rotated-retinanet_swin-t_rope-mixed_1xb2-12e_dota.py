# Rotated RetinaNet, without proposals, on Swin-T with RoPE-Mixed, DOTA-1.0, 12 epochs. No paper
# reports this run; its accuracy was not measured. Detector: mmrotate's
# rotated-retinanet-rbox-le90_r50_fpn_1x_dota.py; backbone, optimizer and learning rates:
# ./oriented-rcnn_swin-t_rope-mixed_1xb2-12e_dota.py.
# Rotated FCOS, ATSS and RTMDet take the backbone in the same way. Their loss (rotated IoU) has no
# operator for a CPU, and the KLD loss of Rotated FCOS gave a loss that is not a number here.
_base_ = 'mmrotate::rotated_retinanet/rotated-retinanet-rbox-le90_r50_fpn_1x_dota.py'
custom_imports = dict(imports=['rope_dense', 'rope_dense.models.mmrotate'])

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
    paramwise_cfg=dict(
        lr_mult={'backbone': 0.1}, no_decay=['norm', 'position', 'frequency']
    ),
)
auto_scale_lr = dict(enable=False, base_batch_size=2)
