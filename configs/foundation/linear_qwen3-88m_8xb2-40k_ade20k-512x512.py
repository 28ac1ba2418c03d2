# Linear segmentation on the frozen tower of Qwen3.5-0.8B (88M), ADE20K, 512 x 512, 40k iterations:
# DINOv3's recipe, linear_dinov3-b_8xb2-40k_ade20k-512x512.py. No author reports it; its accuracy
# was not measured.
# - The map of the last block, without a norm; mean and std are those of the tower, 0.5.
# The weights are under the Apache-2.0 licence.
_base_ = './linear_dinov3-b_8xb2-40k_ade20k-512x512.py'

model = dict(
    data_preprocessor=dict(mean=[127.5, 127.5, 127.5], std=[127.5, 127.5, 127.5]),
    backbone=dict(
        arch='qwen3_88m',
        init_cfg=dict(checkpoint='hf-hub:timm/qwen3_vit_88m_enc.qwen3_5_0_8b'),
    ),
)
