# DEIMv2-X on the tower of Qwen3.5-0.8B (88M), COCO, 58 epochs: the recipe of
# ../deim/deimv2-x_dinov3-s-plus_4xb8-214k_coco.py. Not among its authors' configs, and its accuracy
# was not measured.
# - Mean and std are those of the tower, 0.5; it has no class token and no norm after its blocks.
# - Its learned positions are resized to the grid of each image.
# The weights are under the Apache-2.0 licence.
_base_ = '../deim/deimv2-x_dinov3-s-plus_4xb8-214k_coco.py'

model = dict(
    data_preprocessor=dict(mean=[127.5, 127.5, 127.5], std=[127.5, 127.5, 127.5]),
    backbone=dict(
        arch='qwen3_88m',
        qkv_bias='default',
        init_cfg=dict(checkpoint='hf-hub:timm/qwen3_vit_88m_enc.qwen3_5_0_8b'),
    ),
    neck=dict(in_channels=768),
)
