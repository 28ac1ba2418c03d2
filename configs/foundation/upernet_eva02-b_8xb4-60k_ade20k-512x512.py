# UperNet on EVA-02-B, fine-tuned, ADE20K, 512 x 512, 60k iterations of 32 images. The authors
# report 55.3 mIoU with patches resized to 16 pixels; the patches below were not measured.
# Recipe: baaivision/EVA at 5623d08, EVA-02/seg/configs/eva02/upernet/
# upernet_eva02_base_12_512_slide_60k.py: maps of blocks 3, 5, 7 and 11 without a norm, learning
# rate 6e-5 with layer decay 0.85, ImageNet's mean and std (not the pre-training's).
# Differences:
# - Patches stay at the 14 pixels of the weights: crops of 512 and test images are padded to whole
#   patches, 37 x 37 of them in a crop; windows at test time are 518 pixels wide.
# - The position embedding is resized to that grid when the weights are loaded, and trained at that
#   size.
_base_ = '../upernet_vit/upernet_vit-b_rope-mixed_8xb2-160k_ade20k-512x512.py'

model = dict(
    data_preprocessor=dict(size=(518, 518), test_cfg=dict(size_divisor=14)),
    backbone=dict(
        arch='eva02_base',
        rope='default',
        img_size=518,
        init_cfg=dict(checkpoint='hf-hub:timm/eva02_base_patch14_224.mim_in22k'),
    ),
    test_cfg=dict(crop_size=(518, 518), stride=(346, 346)),
)
train_dataloader = dict(batch_size=4)

optim_wrapper = dict(optimizer=dict(lr=6e-5), paramwise_cfg=dict(layer_decay=0.85))
param_scheduler = [
    dict(type='LinearLR', by_epoch=False, start_factor=1e-6, begin=0, end=1500),
    dict(type='PolyLR', by_epoch=False, power=1.0, eta_min=0.0, begin=0, end=60000),
]
train_cfg = dict(max_iters=60000, val_interval=6000)
default_hooks = dict(checkpoint=dict(interval=6000))
auto_scale_lr = dict(base_batch_size=32)
