# Cascade Mask R-CNN, NAT-Base, bias. As published: 52.3 box AP, 45.1 mask AP.
_base_ = './cascade-mask-rcnn_nat-mini_rpb_8xb2-264k_coco.py'
weights = 'https://shi-labs.com/projects/nat/checkpoints/CLS/nat_base.pth'
backbone = dict(arch='nat_base', drop_path_rate=0.5, init_cfg=dict(checkpoint=weights))
model = dict(backbone=backbone, neck=dict(in_channels=[128, 256, 512, 1024]))
del weights, backbone
