# DEIMv2-X on V-JEPA 2.1 B, COCO, 58 epochs: the recipe of
# ../deim/deimv2-x_dinov3-s-plus_4xb8-214k_coco.py. Not among its authors' configs, and its accuracy
# was not measured.
# - Blocks 5, 8 and 11 each have a norm of their own.
# The weights are under the MIT licence.
_base_ = '../deim/deimv2-x_dinov3-s-plus_4xb8-214k_coco.py'

model = dict(
    backbone=dict(
        arch='vjepa2_1_base',
        qkv_bias='default',
        init_cfg=dict(
            checkpoint='https://dl.fbaipublicfiles.com/vjepa2/vjepa2_1_vitb_dist_vitG_384.pt'
        ),
    ),
    neck=dict(in_channels=768),
)
