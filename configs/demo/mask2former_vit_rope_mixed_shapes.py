# Mask2Former on the small ViT, the data and the iterations of upernet_vit_rope_mixed_shapes.py, for
# comparison with EoMT (docs/eomt.md): the pyramid of UperNet, a pixel decoder of 2 layers and
# a decoder of 3, both of 64 channels.
_base_ = './eomt_vit_rope_mixed_shapes.py'

model = dict(
    type='EncoderDecoder',
    backbone=dict(out_indices=(1, 2, 3, 5), final_norm=False),
    neck=dict(
        type='Feature2Pyramid',
        embed_dim=192,
        rescales=[4, 2, 1, 0.5],
        norm_cfg=dict(type='BN'),
    ),
    decode_head=dict(
        _delete_=True,
        type='Mask2FormerHead',
        in_channels=[192, 192, 192, 192],
        strides=[4, 8, 16, 32],
        feat_channels=64,
        out_channels=64,
        num_classes=7,
        num_queries=20,
        num_transformer_feat_level=3,
        align_corners=False,
        pixel_decoder=dict(
            type='mmdet.MSDeformAttnPixelDecoder',
            num_outs=3,
            norm_cfg=dict(type='GN', num_groups=32),
            act_cfg=dict(type='ReLU'),
            positional_encoding=dict(num_feats=32, normalize=True),
            encoder=dict(
                num_layers=2,
                layer_cfg=dict(
                    self_attn_cfg=dict(
                        embed_dims=64,
                        num_heads=4,
                        num_levels=3,
                        num_points=4,
                        batch_first=True,
                    ),
                    ffn_cfg=dict(embed_dims=64, feedforward_channels=256),
                ),
            ),
        ),
        positional_encoding=dict(num_feats=32, normalize=True),
        transformer_decoder=dict(
            return_intermediate=True,
            num_layers=3,
            layer_cfg=dict(
                self_attn_cfg=dict(embed_dims=64, num_heads=4, batch_first=True),
                cross_attn_cfg=dict(embed_dims=64, num_heads=4, batch_first=True),
                ffn_cfg=dict(embed_dims=64, feedforward_channels=256),
            ),
        ),
        loss_cls={{_base_.model.decode_head.loss_cls}},
        loss_mask={{_base_.model.decode_head.loss_mask}},
        loss_dice={{_base_.model.decode_head.loss_dice}},
        train_cfg={{_base_.model.decode_head.train_cfg}},
    ),
)
custom_hooks = []
