# UperNet on EVA-02-B, ADE20K, 512 x 512, 160k iterations. No paper has this run and its accuracy
# was not measured: it is the recipe of ../upernet_vit_rope_mixed.py with other weights, and nothing
# was tuned to them. (EVA-02's own run, 55.3 mIoU, has patches resized to 16 pixels and 60k
# iterations of 32 images.)
# - Patches stay at the 14 pixels of the weights: crops of 512 and test images are padded to whole
#   patches, 37 x 37 of them in a crop; windows at test time are 518 pixels wide.
# - The position embedding is resized to that grid when the weights are loaded, and trained so.
# - Colours are normalised as timm's settings of these weights say (CLIP's values).
_base_ = '../upernet_vit_rope_mixed.py'

model = dict(
    data_preprocessor=dict(
        mean=[122.771, 116.746, 104.094],
        std=[68.501, 66.632, 70.323],
        size=(518, 518),
        test_cfg=dict(size_divisor=14),
    ),
    backbone=dict(
        arch='eva02_base',
        rope='default',
        img_size=518,
        init_cfg=dict(checkpoint='hf-hub:timm/eva02_base_patch14_224.mim_in22k'),
    ),
    test_cfg=dict(crop_size=(518, 518), stride=(346, 346)),
)
