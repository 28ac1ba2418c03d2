# Linear segmentation on a frozen DINOv3 ViT-S, ADE20K; as for ViT-B. DINOv3's model card: 47.0
# mIoU.
_base_ = './linear_dinov3-b_8xb2-40k_ade20k-512x512.py'
weights = 'hf-hub:timm/vit_small_patch16_dinov3.lvd1689m'
backbone = dict(arch='dinov3_small', init_cfg=dict(checkpoint=weights))
model = dict(backbone=backbone, decode_head=dict(in_channels=384))
del weights, backbone
