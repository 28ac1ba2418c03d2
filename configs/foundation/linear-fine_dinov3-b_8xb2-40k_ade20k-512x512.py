# Linear segmentation on features of stride 4, in place of 16, of a frozen DINOv3 ViT-B, ADE20K:
# ./linear_dinov3-b_8xb2-40k_ade20k-512x512.py with NAF's published neck, frozen. Neither DINOv3's
# nor NAF's authors report this recipe, and it was not run at full size.
# The neck: valeoai/NAF at ad4e24d, Apache-2.0; no licence is stated for its weights.
# method='bilinear' is the same without guidance.
_base_ = './linear_dinov3-b_8xb2-40k_ade20k-512x512.py'

model = dict(
    backbone=dict(type='RoPEViTWithImage'),
    neck=dict(
        type='FineFeatures',
        scale_factor=4,
        frozen=True,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://github.com/valeoai/NAF/releases/download/model/naf_release.pth',
        ),
    ),
)
