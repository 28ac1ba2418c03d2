# DEIMv2-X on RICE ViT-L/14-560, COCO, 58 epochs: the recipe of
# ../deim/deimv2-x_dinov3-s-plus_4xb8-214k_coco.py. Not among its authors' configs, and its accuracy
# was not measured.
# - Maps of blocks 11, 17 and 23 of 24, as of blocks 5, 8 and 11 of 12.
# - Mean and std are CLIP's.
# - Images of 640 pixels are padded to 672, and batches resized to multiples of 56: whole patches of
#   14 and cells of 8, so that both grids end where the image does.
# The licence of the weights was not seen: read their card.
_base_ = '../deim/deimv2-x_dinov3-s-plus_4xb8-214k_coco.py'

model = dict(
    data_preprocessor=dict(
        mean=[122.771, 116.746, 104.094],
        std=[68.501, 66.632, 70.323],
        pad_size_divisor=56,
        batch_augments=[
            _base_['model']['data_preprocessor']['batch_augments'][0],
            dict(
                type='MultiScaleBatch', base=672, divisor=56, repeat=3, epochs=(0, 50)
            ),
        ],
    ),
    backbone=dict(
        arch='rice_large',
        out_indices=(11, 17, 23),
        qkv_bias='default',
        init_cfg=dict(checkpoint='hf-hub:DeepGlint-AI/rice-vit-large-patch14-560'),
    ),
    neck=dict(in_channels=1024),
)
