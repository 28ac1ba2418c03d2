# EoMT for semantic segmentation, as published for ADE20K. A config adds the backbone and the head's
# in_channels.
_base_ = './mask_losses.py'

model = dict(
    type='EoMTSegmentor',
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        size=(512, 512),
        pad_val=0,
        seg_pad_val=255,
    ),
    decode_head=dict(
        type='EoMTSegHead',
        num_classes=150,
        num_queries=100,
        num_blocks=4,
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='slide', crop_size=(512, 512)),
)
