# Mask2Former for semantic segmentation, as published for ADE20K. A config adds the backbone and the
# head's in_channels.
_base_ = './mask_losses.py'

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
        test_cfg=dict(size_divisor=32),
    ),
    decode_head=dict(
        type='SlideMask2FormerHead',
        strides=[4, 8, 16, 32],
        feat_channels=256,
        out_channels=256,
        num_classes=150,
        num_queries=100,
        num_transformer_feat_level=3,
        align_corners=False,
        enforce_decoder_input_project=False,
        positional_encoding=dict(num_feats=128, normalize=True),
        pixel_decoder=dict(
            type='mmdet.MSDeformAttnPixelDecoder',
            num_outs=3,
            norm_cfg=dict(type='GN', num_groups=32),
            act_cfg=dict(type='ReLU'),
            positional_encoding=dict(num_feats=128, normalize=True),
            encoder=dict(
                num_layers=6,
                layer_cfg=dict(
                    self_attn_cfg=dict(
                        embed_dims=256,
                        num_heads=8,
                        num_levels=3,
                        num_points=4,
                        dropout=0.0,
                        batch_first=True,
                    ),
                    ffn_cfg=dict(
                        embed_dims=256,
                        feedforward_channels=1024,
                        num_fcs=2,
                        ffn_drop=0.0,
                        act_cfg=dict(type='ReLU', inplace=True),
                    ),
                ),
            ),
        ),
        transformer_decoder=dict(
            return_intermediate=True,
            num_layers=9,
            layer_cfg=dict(
                self_attn_cfg=dict(
                    embed_dims=256, num_heads=8, attn_drop=0.0, proj_drop=0.0
                ),
                cross_attn_cfg=dict(
                    embed_dims=256, num_heads=8, attn_drop=0.0, proj_drop=0.0
                ),
                ffn_cfg=dict(
                    embed_dims=256,
                    feedforward_channels=2048,
                    num_fcs=2,
                    ffn_drop=0.0,
                    act_cfg=dict(type='ReLU', inplace=True),
                    add_identity=True,
                ),
            ),
            init_cfg=None,
        ),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'),
)
