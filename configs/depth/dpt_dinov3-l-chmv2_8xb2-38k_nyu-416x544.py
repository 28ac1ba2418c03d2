# The architecture of CHMv2 (canopy heights in metres from satellite images): DPT with mixed bins to
# 96 m on DINOv3 ViT-L. Its weights, of backbone and head, are a checkpoint of the tools:
# hf-hub:facebook/dinov3-vitl16-chmv2-dpt-head. Settings are those of transformers' CHMv2Config and
# CHMv2ImageProcessor. Its training is not published; the one here is the linear recipe, on NYU:
# give data of your own. The weights have the DINOv3 licence.
_base_ = './dpt_dinov3-b_8xb2-38k_nyu-416x544.py'

model = dict(
    data_preprocessor=dict(mean=[107.1, 104.805, 75.48], std=[54.315, 39.78, 36.465]),
    backbone=dict(
        arch='dinov3_large',
        qkv_bias='qv',
        norm_cfg=dict(type='LN', eps=1e-6),
        out_indices=(5, 11, 17, 23),
        init_cfg=dict(checkpoint='hf-hub:timm/vit_large_patch16_dinov3_qkvb.sat493m'),
    ),
    decode_head=dict(
        in_channels=1024,
        post_process_channels=[128, 256, 512, 1024],
        bins='mixed',
        max_depth=96.0,
    ),
)
