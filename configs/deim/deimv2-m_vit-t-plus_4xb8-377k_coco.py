# DEIMv2-M on ViT-T+, COCO, 102 epochs. Its authors report 53.0 AP.
# Recipe: configs/deimv2/deimv2_dinov3_m_coco.yml; as for S.
_base_ = './deimv2-s_vit-t_4xb8-488k_coco.py'

from rope_dense.models.deim.recipe import set_stages

model = dict(
    backbone=dict(
        arch='deimv2_tiny_plus',
        init_cfg=dict(checkpoint='checkpoints/vittplus_distill.pt'),
    ),
    neck=dict(in_channels=256, out_channels=256),
    encoder=dict(
        in_channels=(256, 256, 256), embed_dims=256, num_blocks=3, expansion=0.67
    ),
    bbox_head=dict(embed_dims=256),
)

globals().update(
    set_stages(_base_, model, epochs=102, starts=(4, 49, 90), late_epoch=80, repeat=6)
)
