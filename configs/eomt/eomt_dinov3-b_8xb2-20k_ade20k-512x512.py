# EoMT on DINOv3 ViT-B, ADE20K semantic. Not among the authors' configs: the config for ViT-L with
# the 3 blocks and the annealing of their ViT-B on COCO. Its accuracy was not measured.
_base_ = './eomt_dinov3-l_8xb2-20k_ade20k-512x512.py'

model = dict(
    backbone=dict(
        arch='dinov3_base',
        init_cfg=dict(checkpoint='hf-hub:timm/vit_base_patch16_dinov3_qkvb.lvd1689m'),
    ),
    decode_head=dict(in_channels=768, num_blocks=3),
)
custom_hooks = [
    dict(
        type='MaskAnnealingHook',
        start=[0, 8150, 13040],
        end=[3000, 11410, 16300],
        power=0.9,
    )
]
