# SegFormer's head on Swin-T with RoPE-Mixed, ADE20K, 512 x 512, 160k iterations. No paper has this
# run, and its accuracy was not measured. Head, learning rates and weight decay are those of mmseg's
# segformer_mit-b2_8xb2-160k_ade20k-512x512.py; frequencies have no weight decay. (Not `_base_`:
# `mmseg::` is not found in the onedl-* packages.)
_base_ = [
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/upernet_160k.py',
    '../_base_/mmseg_runtime.py',
]

model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        size=(512, 512),
        pad_val=0,
        seg_pad_val=255,
    ),
    backbone=dict(
        type='RoPESwin',
        arch='tiny',
        rope=dict(type='MixedRoPE', theta=10.0),
        window_size=7,
        drop_path_rate=0.1,
        out_indices=(0, 1, 2, 3),
        init_cfg=dict(
            type='Pretrained', checkpoint='hf-hub:naver-ai/swin_rope_mixed_tiny_patch4_window7_224'
        ),
    ),
    decode_head=dict(
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
    train_cfg=dict(),
    test_cfg=dict(mode='whole'),
)
tta_model = dict(type='SegTTAModel')

optim_wrapper = dict(
    optimizer=dict(lr=6e-5, weight_decay=0.01),
    paramwise_cfg=dict(
        _delete_=True, lr_mult={'decode_head': 10.0}, no_decay=['norm', 'frequency']
    ),
)
