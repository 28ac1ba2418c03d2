# DEIMv2-X on DINOv3 ViT-S+, COCO, 58 epochs. Its authors report 57.8 AP.
# Recipe: configs/deimv2/deimv2_dinov3_x_coco.yml; as for S.
_base_ = './deimv2-s_vit-t_4xb8-488k_coco.py'

from rope_dense.models.deim.recipe import set_stages

model = dict(
    backbone=dict(
        arch='dinov3_small_plus',
        qkv_bias='qv',
        out_indices=(5, 8, 11),
        init_cfg=dict(
            checkpoint='hf-hub:timm/vit_small_plus_patch16_dinov3_qkvb.lvd1689m'
        ),
    ),
    neck=dict(in_channels=384, stem_channels=64, out_channels=256),
    encoder=dict(
        in_channels=(256, 256, 256),
        embed_dims=256,
        feedforward_channels=1024,
        num_blocks=4,
        expansion=1.25,
    ),
    bbox_head=dict(
        embed_dims=256, decoder=dict(num_layers=6, feedforward_channels=2048)
    ),
)
optim_wrapper = dict(
    optimizer=dict(weight_decay=1.25e-4), paramwise_cfg=dict(lr_mult={'backbone': 0.02})
)

globals().update(
    set_stages(_base_, model, epochs=58, starts=(4, 29, 50), late_epoch=45, repeat=3)
)
