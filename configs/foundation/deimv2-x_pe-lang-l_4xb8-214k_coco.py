# DEIMv2-X on Perception Encoder lang L, COCO, 58 epochs: the recipe of
# ../deim/deimv2-x_dinov3-s-plus_4xb8-214k_coco.py. Not among its authors' configs, and its accuracy
# was not measured.
# - Maps of blocks 10, 16 and 22 of 23, as of blocks 5, 8 and 11 of 12.
# - Mean and std are those of the encoder, 0.5.
# - Images of 640 pixels are padded to 672, and batches resized to multiples of 56: whole patches of
#   14 and cells of 8, so that both grids end where the image does.
# The weights are under the Apache-2.0 licence.
_base_ = '../deim/deimv2-x_dinov3-s-plus_4xb8-214k_coco.py'

model = dict(
    data_preprocessor=dict(
        mean=[127.5, 127.5, 127.5],
        std=[127.5, 127.5, 127.5],
        pad_size_divisor=56,
        batch_augments=[
            _base_['model']['data_preprocessor']['batch_augments'][0],
            dict(
                type='MultiScaleBatch', base=672, divisor=56, repeat=3, epochs=(0, 50)
            ),
        ],
    ),
    backbone=dict(
        arch='pe_lang_large',
        out_indices=(10, 16, 22),
        qkv_bias='default',
        init_cfg=dict(checkpoint='hf-hub:timm/vit_pe_lang_large_patch14_448.fb'),
    ),
    neck=dict(in_channels=1024),
)
