# EoMT on DINOv3 ViT-L, ADE20K semantic, 512 x 512, 16 epochs. The authors have 59.5 mIoU.
# Recipe: tue-mps/eomt at 7bd19dd, configs/dinov3/ade20k/semantic/eomt_large_512.yaml and the code
# that reads it. One learning rate for all blocks: in that code lr_mult: 0.1 has no effect.
# - Biases of queries and values, as in Hugging Face's DINOv3, the authors' initial weights.
# - Windows of 512 pixels, evenly spaced along the long side; the short side is 512.
# Differences: brightness is shifted by up to 32 (the authors multiply by 1 +- 0.125), saturation
# is changed in HSV, OpenCV resizes without antialiasing, and an image without any label is kept.
# The weights have the DINOv3 licence.
_base_ = [
    '../_base_/models/eomt_semantic.py',
    '../_base_/datasets/ade20k_eomt.py',
    '../_base_/schedules/eomt.py',
    '../_base_/mmseg_runtime.py',
]

model = dict(
    backbone=dict(
        type='RoPEViT',
        arch='dinov3_large',
        qkv_bias='qv',
        init_cfg=dict(
            type='Pretrained',
            checkpoint='hf-hub:timm/vit_large_patch16_dinov3_qkvb.lvd1689m',
        ),
    ),
    decode_head=dict(in_channels=1024),
)

optim_wrapper = dict(paramwise_cfg=dict(lr_mult={'backbone': 1.0}))
param_scheduler = [
    dict(
        type='TwoStageWarmupPolyLR',
        by_epoch=False,
        warmup=2000,
        backbone_warmup=3000,
        end=20208,
        power=0.9,
    )
]
train_cfg = dict(max_iters=20208, val_interval=5000)
custom_hooks = [
    dict(
        type='MaskAnnealingHook',
        start=[0, 6520, 9780, 13040],
        end=[3000, 9780, 13040, 16300],
        power=0.9,
    )
]
