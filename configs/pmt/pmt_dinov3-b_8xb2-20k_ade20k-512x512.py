# PMT on DINOv3 ViT-B, ADE20K semantic, 512 x 512. Not among the authors' configs: the config for
# ViT-L on the maps of their ViT-B. Its accuracy was not measured.
_base_ = './pmt_dinov3-l_8xb2-20k_ade20k-512x512.py'

model = dict(
    backbone=dict(
        arch='dinov3_base',
        out_indices=(2, 5, 8, 11),
        init_cfg=dict(checkpoint='hf-hub:timm/vit_base_patch16_dinov3_qkvb.lvd1689m'),
    ),
    decode_head=dict(in_channels=768),
)
