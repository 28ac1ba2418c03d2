# EoMT on DINOv3 ViT-S, ADE20K semantic; as for ViT-B.
_base_ = './eomt_dinov3-b_8xb2-20k_ade20k-512x512.py'

model = dict(
    backbone=dict(
        arch='dinov3_small',
        init_cfg=dict(checkpoint='hf-hub:timm/vit_small_patch16_dinov3_qkvb.lvd1689m'),
    ),
    decode_head=dict(in_channels=384),
)
