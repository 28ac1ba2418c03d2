# DINO on EVA-02-B, fine-tuned, COCO, 12 epochs. detrex reports 55.8 box AP; the config with
# the differences below was not measured.
# Recipe: detrex at e244e6c, projects/dino_eva/configs/dino-eva-02/
# dino_eva_02_vitdet_b_4attn_1024_lrd0p7_4scale_12ep.py: learning rate 1e-4 with layer decay
# 0.7, the pyramid at the full rate, weight decay for norms too, windows of 16 tokens
# each with the coordinates of the pre-training grid, no class token, no final norm, ImageNet's mean
# and std (not the pre-training's).
# Differences:
# - DINO's augmentation, where detrex jitters the scale of squares of 1024 pixels.
# - Patches stay at the 14 pixels of the weights, where detrex resizes them to 16: images are padded
#   to whole patches, and the strides of the pyramid are 7 to 56.
# - The warm-up of ../dino_vitdet_rope_mixed.py; detrex has none.
_base_ = '../dino_vitdet/dino-vitdet_vit-b_rope-mixed_8xb2-90k_coco.py'

model = dict(
    data_preprocessor=dict(pad_size_divisor=14),
    backbone=dict(
        arch='eva02_base',
        rope='default',
        window_size=16,
        init_cfg=dict(checkpoint='hf-hub:timm/eva02_base_patch14_224.mim_in22k'),
    ),
)
optim_wrapper = dict(paramwise_cfg=dict(_delete_=True, layer_decay=0.7))
