# Linear segmentation on a frozen RICE ViT-L/14-560, ADE20K, 512 x 512, 40k iterations: DINOv3's
# recipe, linear_dinov3-b_8xb2-40k_ade20k-512x512.py. No author reports it; its accuracy was not
# measured.
# - The map of the last block, without the norm of the class token; mean and std are CLIP's.
# - Crops of 512 and test images are padded to whole patches of 14; windows at test time are 518
#   pixels wide.
# The licence of the weights was not seen: read their card.
_base_ = './linear_dinov3-b_8xb2-40k_ade20k-512x512.py'

model = dict(
    data_preprocessor=dict(
        mean=[122.771, 116.746, 104.094],
        std=[68.501, 66.632, 70.323],
        size=(518, 518),
        test_cfg=dict(size_divisor=14),
    ),
    backbone=dict(
        arch='rice_large',
        init_cfg=dict(checkpoint='hf-hub:DeepGlint-AI/rice-vit-large-patch14-560'),
    ),
    decode_head=dict(in_channels=1024),
    test_cfg=dict(crop_size=(518, 518), stride=(346, 346)),
)
