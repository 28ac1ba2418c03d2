# Mask R-CNN, NAT-Tiny, bias. As published: 47.7 box AP, 42.6 mask AP.
_base_ = './mask-rcnn_nat-mini_rpb_8xb2-264k_coco.py'
weights = 'https://shi-labs.com/projects/nat/checkpoints/CLS/nat_tiny.pth'
backbone = dict(arch='nat_tiny', drop_path_rate=0.2, init_cfg=dict(checkpoint=weights))
model = dict(backbone=backbone)
del weights, backbone
