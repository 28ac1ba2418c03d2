# PMT on DINOv3 ViT-B, COCO panoptic, 640 x 640, 12 epochs. The authors have 52.8 PQ.
# Recipe: tue-mps/pmt at 54d73c9, image/configs/coco/panoptic/pmt_b_640.yaml.
_base_ = './pmt_dinov3-l_8xb2-89k_coco-panoptic-640x640.py'

model = dict(
    backbone=dict(
        arch='dinov3_base',
        out_indices=(2, 5, 8, 11),
        init_cfg=dict(checkpoint='hf-hub:timm/vit_base_patch16_dinov3_qkvb.lvd1689m'),
    ),
    panoptic_head=dict(in_channels=768),
)
