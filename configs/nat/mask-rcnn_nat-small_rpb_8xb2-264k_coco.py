# Mask R-CNN, NAT-Small, bias. As published: 48.4 box AP, 43.2 mask AP.
_base_ = './mask-rcnn_nat-mini_rpb_8xb2-264k_coco.py'
weights = 'https://shi-labs.com/projects/nat/checkpoints/CLS/nat_small.pth'
backbone = dict(arch='nat_small', drop_path_rate=0.35, init_cfg=dict(checkpoint=weights))
model = dict(backbone=backbone, neck=dict(in_channels=[96, 192, 384, 768]))
del weights, backbone
