# SegFormer's head on Swin-T with RoPE-Mixed, ADE20K, 512 x 512, 160k iterations. No paper reports
# this run; its accuracy was not measured. Head, learning rates and weight decay are from mmseg's
# segformer_mit-b2_8xb2-160k_ade20k-512x512.py; frequencies have no weight decay. (That file is not
# the base, because the onedl-* packages do not find `mmseg::`.)
_base_ = '../upernet_vit/upernet_vit-b_rope-mixed_8xb2-160k_ade20k-512x512.py'

model = dict(
    backbone=dict(
        _delete_=True,
        type='RoPESwin',
        arch='tiny',
        rope=dict(type='MixedRoPE', theta=10.0),
        window_size=7,
        drop_path_rate=0.1,
        out_indices=(0, 1, 2, 3),
        init_cfg=dict(
            type='Pretrained',
            checkpoint='hf-hub:naver-ai/swin_rope_mixed_tiny_patch4_window7_224',
        ),
    ),
    neck=None,
    decode_head=dict(
        _delete_=True,
        type='SegformerHead',
        in_channels=[96, 192, 384, 768],
        in_index=[0, 1, 2, 3],
        channels=256,
        dropout_ratio=0.1,
        num_classes=150,
        norm_cfg=dict(type='SyncBN', requires_grad=True),
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
    ),
    auxiliary_head=None,
    test_cfg=dict(_delete_=True, mode='whole'),
)
optim_wrapper = dict(
    optimizer=dict(lr=6e-5, weight_decay=0.01),
    paramwise_cfg=dict(
        _delete_=True, lr_mult={'decode_head': 10.0}, no_decay=['norm', 'frequency']
    ),
)
