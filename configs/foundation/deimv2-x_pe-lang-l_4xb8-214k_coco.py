# DEIMv2-X on Perception Encoder lang L, COCO, 58 epochs: the recipe of
# ../deim/deimv2-x_dinov3-s-plus_4xb8-214k_coco.py. Not among its authors' configs, and its accuracy
# was not measured.
# - Maps of blocks 10, 16 and 22 of 23, as of blocks 5, 8 and 11 of 12.
# - Mean and std are those of the encoder, 0.5.
# The weights are under the Apache-2.0 licence.
_base_ = '../deim/deimv2-x_dinov3-s-plus_4xb8-214k_coco.py'

model = dict(
    data_preprocessor=dict(mean=[127.5, 127.5, 127.5], std=[127.5, 127.5, 127.5]),
    backbone=dict(
        arch='pe_lang_large',
        out_indices=(10, 16, 22),
        qkv_bias='default',
        init_cfg=dict(checkpoint='hf-hub:timm/vit_pe_lang_large_patch14_448.fb'),
    ),
    neck=dict(in_channels=1024),
)
