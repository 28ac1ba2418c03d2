# PMT on DINOv3 ViT-S, COCO panoptic, 640 x 640, 12 epochs. The authors have 45.3 PQ.
# Recipe: tue-mps/pmt at 54d73c9, image/configs/coco/panoptic/pmt_s_640.yaml.
_base_ = './pmt_dinov3-l_8xb2-89k_coco-panoptic-640x640.py'

model = dict(
    backbone=dict(
        arch='dinov3_small',
        out_indices=(2, 5, 8, 11),
        init_cfg=dict(checkpoint='hf-hub:timm/vit_small_patch16_dinov3_qkvb.lvd1689m'),
    ),
    panoptic_head=dict(in_channels=384),
)
