# The backbone of configs/demo/dino_vitdet_rope_mixed_shapes.py as a classifier of six shapes.
_base_ = '../../../configs/research/_base_/classifier_in1k.py'

model = dict(
    num_classes=6,
    backbone=dict(
        type='RoPEViT',
        arch=dict(embed_dims=192, depth=6, num_heads=3),
        img_size=48,
        with_cls_token=False,
        layer_scale_init_value=None,
        final_norm=True,
    ),
)
