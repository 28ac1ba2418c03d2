# Linear segmentation on a frozen Perception Encoder lang L, ADE20K, 512 x 512, 40k iterations:
# DINOv3's recipe, linear_dinov3-b_8xb2-40k_ade20k-512x512.py. No author reports it; its accuracy
# was not measured.
# - The map of the last block, which has no norm; mean and std are those of the encoder, 0.5.
# - Crops of 512 and test images are padded to whole patches of 14; windows at test time are 518
#   pixels wide.
# The weights are under the Apache-2.0 licence.
_base_ = './linear_dinov3-b_8xb2-40k_ade20k-512x512.py'

model = dict(
    data_preprocessor=dict(
        mean=[127.5, 127.5, 127.5],
        std=[127.5, 127.5, 127.5],
        size=(518, 518),
        test_cfg=dict(size_divisor=14),
    ),
    backbone=dict(
        arch='pe_lang_large',
        init_cfg=dict(checkpoint='hf-hub:timm/vit_pe_lang_large_patch14_448.fb'),
    ),
    decode_head=dict(in_channels=1024),
    test_cfg=dict(crop_size=(518, 518), stride=(346, 346)),
)
