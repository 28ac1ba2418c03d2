# DPT on ViT-B with RoPE-Mixed, ADE20K, 512 x 512, 160k iterations. No paper has this run, and its
# accuracy was not measured. Head, maps, learning rate and weight decay are those of mmseg's
# dpt_vit-b16_8xb2-160k_ade20k-512x512.py: four maps without the final norm, each with its class
# token. Frequencies have no weight decay; the class token has, unlike there. (Not `_base_`:
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
        type='RoPEViT',
        arch='base',
        rope=dict(type='MixedRoPE', theta=10.0),
        with_cls_token=True,
        out_indices=(2, 5, 8, 11),
        output_prefix='cls',
        init_cfg=dict(
            type='Pretrained', checkpoint='hf-hub:naver-ai/rope_mixed_deit_base_patch16_LS'
        ),
    ),
    decode_head=dict(
        type='DPTHead',
        in_channels=[768, 768, 768, 768],
        in_index=[0, 1, 2, 3],
        input_transform='multiple_select',
        embed_dims=768,
        channels=256,
        post_process_channels=[96, 192, 384, 768],
        readout_type='project',
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
    paramwise_cfg=dict(_delete_=True, no_decay=['norm', 'frequency']),
)
