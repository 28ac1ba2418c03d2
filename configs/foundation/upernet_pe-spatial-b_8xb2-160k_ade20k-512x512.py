# UperNet on Perception Encoder spatial B, fine-tuned, ADE20K, 512 x 512, 160k iterations. No paper
# reports this run; its accuracy was not measured: training follows ../upernet_vit_rope_mixed.py,
# and nothing was tuned to the weights. (The authors report 44.4 mIoU for a linear head on frozen
# weights.)
# - PE spatial has no norm after its blocks; mean and std are those of its pre-training, 0.5.
_base_ = '../upernet_vit/upernet_vit-b_rope-mixed_8xb2-160k_ade20k-512x512.py'

model = dict(
    data_preprocessor=dict(mean=[127.5, 127.5, 127.5], std=[127.5, 127.5, 127.5]),
    backbone=dict(
        arch='pe_spatial_base',
        rope='default',
        init_cfg=dict(checkpoint='hf-hub:timm/vit_pe_spatial_base_patch16_512.fb'),
    ),
)
