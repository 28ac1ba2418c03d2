# DEIMv2-X on RICE ViT-L/14-560, COCO, 58 epochs: the recipe of
# ./deimv2-x_pe-lang-l_4xb8-214k_coco.py. Not among its authors' configs, and its accuracy was not
# measured.
# - Maps of blocks 11, 17 and 23 of 24, as of blocks 5, 8 and 11 of 12.
# - Mean and std are CLIP's.
# The licence of the weights was not seen: read their card.
_base_ = './deimv2-x_pe-lang-l_4xb8-214k_coco.py'

model = dict(
    data_preprocessor=dict(
        mean=[122.771, 116.746, 104.094], std=[68.501, 66.632, 70.323]
    ),
    backbone=dict(
        arch='rice_large',
        out_indices=(11, 17, 23),
        init_cfg=dict(checkpoint='hf-hub:DeepGlint-AI/rice-vit-large-patch14-560'),
    ),
)
