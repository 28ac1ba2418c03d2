# Linear segmentation on a frozen DINOv3 ViT-L, ADE20K; as for ViT-B. DINOv3's model card: 54.9
# mIoU.
_base_ = './linear_dinov3-b_8xb2-40k_ade20k-512x512.py'
weights = 'hf-hub:timm/vit_large_patch16_dinov3.lvd1689m'
backbone = dict(arch='dinov3_large', init_cfg=dict(checkpoint=weights))
model = dict(backbone=backbone, decode_head=dict(in_channels=1024))
del weights, backbone
