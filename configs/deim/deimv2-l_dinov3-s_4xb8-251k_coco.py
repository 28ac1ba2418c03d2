# DEIMv2-L on DINOv3 ViT-S, COCO, 68 epochs. Its authors report 56.0 AP.
# Recipe: configs/deimv2/deimv2_dinov3_l_coco.yml; as for S.
_base_ = './deimv2-s_vit-t_4xb8-488k_coco.py'

from rope_dense.models.deim.recipe import set_stages

model = dict(
    backbone=dict(
        arch='dinov3_small',
        qkv_bias='qv',
        out_indices=(5, 8, 11),
        init_cfg=dict(checkpoint='hf-hub:timm/vit_small_patch16_dinov3_qkvb.lvd1689m'),
    ),
    neck=dict(in_channels=384, stem_channels=32, out_channels=224),
    encoder=dict(
        in_channels=(224, 224, 224),
        embed_dims=224,
        feedforward_channels=896,
        num_blocks=3,
        expansion=1.0,
    ),
    bbox_head=dict(embed_dims=224, decoder=dict(feedforward_channels=1792)),
)
optim_wrapper = dict(
    optimizer=dict(weight_decay=1.25e-4),
    paramwise_cfg=dict(lr_mult={'backbone': 0.025}),
)

globals().update(
    set_stages(_base_, model, epochs=68, starts=(4, 34, 60), late_epoch=50, repeat=3)
)
