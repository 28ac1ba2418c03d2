# Cascade Mask R-CNN, NAT-Mini, bias, COCO, 36 epochs. As published: 50.3 box AP, 43.6 mask AP.
# Recipe: SHI-Labs/Neighborhood-Attention-Transformer at d334f5b,
# detection/configs/nat/cascade_mask_rcnn_nat_mini_3x_coco.py and its base files.
# Where no source settles it: an epoch is 7330 iterations, the images with objects in batches of 16.
_base_ = [
    '../_base_/models/cascade_mask_rcnn.py',
    '../_base_/datasets/coco_instance.py',
    '../_base_/schedules/rcnn_264k.py',
    '../_base_/mmdet_runtime.py',
]

model = dict(
    backbone=dict(
        type='RoPENAT',
        arch='nat_mini',
        rope=None,
        attention=dict(type='TableBias'),
        kernel_size=7,
        drop_path_rate=0.2,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://shi-labs.com/projects/nat/checkpoints/CLS/nat_mini.pth',
        ),
    ),
    neck=dict(in_channels=[64, 128, 256, 512]),
)
default_hooks = dict(checkpoint=dict(interval=7330))
