# DINO on EVA-02-B, COCO, 12 epochs. No paper has this run and its accuracy was not measured: it is
# the recipe of ../dino_vitdet_rope_mixed.py with other weights, and nothing was tuned to them.
# - Windows of 16 tokens are EVA-02's own detectors' (ViTDet with Cascade Mask R-CNN); as there,
#   each window has the coordinates of the pre-training grid.
# - Patches stay at the 14 pixels of the weights, where those detectors resize them to 16: images
#   are padded to whole patches, and the strides of the pyramid are 7 to 56.
# - Colours are normalised as timm's settings of these weights say (CLIP's values).
_base_ = '../dino_vitdet_rope_mixed.py'

model = dict(
    data_preprocessor=dict(
        mean=[122.771, 116.746, 104.094], std=[68.501, 66.632, 70.323], pad_size_divisor=14
    ),
    backbone=dict(
        arch='eva02_base',
        rope='default',
        window_size=16,
        init_cfg=dict(checkpoint='hf-hub:timm/eva02_base_patch14_224.mim_in22k'),
    ),
)
