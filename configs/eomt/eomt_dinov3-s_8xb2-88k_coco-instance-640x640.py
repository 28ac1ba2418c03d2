# EoMT on DINOv3 ViT-S, COCO instance, 640 x 640; as for ViT-B.
_base_ = './eomt_dinov3-b_8xb2-88k_coco-instance-640x640.py'

model = dict(
    backbone=dict(
        arch='dinov3_small',
        init_cfg=dict(checkpoint='hf-hub:timm/vit_small_patch16_dinov3_qkvb.lvd1689m'),
    ),
    panoptic_head=dict(in_channels=384),
)
