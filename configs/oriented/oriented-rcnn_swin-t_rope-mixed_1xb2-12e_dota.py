# Oriented R-CNN on Swin-T with RoPE-Mixed, DOTA-1.0, 12 epochs, tiles of 1024 pixels. No paper
# reports this run; its accuracy was not measured. Recipe: mmrotate's
# oriented-rcnn-le90_swin-tiny_fpn_1x_dota.py (AdamW 1e-4, weight decay 0.05, backbone at a tenth of
# the learning rate, drop path 0.2), with another position embedding. Frequencies have no weight
# decay (the rule of their pre-training).
# Windows have 7 x 7 tokens as in pre-training, for any image size; positions count within a window,
# so no frequency has to be adapted.
_base_ = 'mmrotate::oriented_rcnn/oriented-rcnn-le90_swin-tiny_fpn_1x_dota.py'
custom_imports = dict(imports=['rope_dense', 'rope_dense.models.mmrotate'])

model = dict(
    backbone=dict(
        _delete_=True,
        type='RoPESwin',
        arch='tiny',
        rope=dict(type='MixedRoPE', theta=10.0),
        window_size=7,
        drop_path_rate=0.2,
        out_indices=(0, 1, 2, 3),
        init_cfg=dict(
            type='Pretrained',
            checkpoint='hf-hub:naver-ai/swin_rope_mixed_tiny_patch4_window7_224',
        ),
    )
)
optim_wrapper = dict(
    constructor='NamedGroupsConstructor',
    paramwise_cfg=dict(
        _delete_=True,
        lr_mult={'backbone': 0.1},
        no_decay=['norm', 'position', 'frequency'],
    ),
)
auto_scale_lr = dict(enable=False, base_batch_size=2)
