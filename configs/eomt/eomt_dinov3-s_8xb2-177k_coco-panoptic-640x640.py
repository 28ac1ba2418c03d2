# EoMT on DINOv3 ViT-S, COCO panoptic, 640 x 640, 24 epochs. The authors have 47.2 PQ.
# Recipe: tue-mps/eomt at 7bd19dd, configs/dinov3/coco/panoptic/eomt_small_640_2x.yaml.
_base_ = './eomt_dinov3-b_8xb2-177k_coco-panoptic-640x640.py'

model = dict(
    backbone=dict(
        arch='dinov3_small',
        init_cfg=dict(checkpoint='hf-hub:timm/vit_small_patch16_dinov3_qkvb.lvd1689m'),
    ),
    panoptic_head=dict(in_channels=384),
)
