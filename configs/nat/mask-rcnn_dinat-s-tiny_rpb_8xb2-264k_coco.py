# Mask R-CNN, DiNAT-s-Tiny, bias. As published: 46.6 box AP, 42.1 mask AP.
_base_ = './mask-rcnn_nat-mini_rpb_8xb2-264k_coco.py'
weights = 'https://shi-labs.com/projects/dinat/checkpoints/imagenet1k/dinat_s_tiny_in1k_224.pth'
dilations = ((1, 28), (1, 14), (1, 3, 1, 5, 1, 7), (1, 3))
backbone = dict(arch='dinat_s_tiny', dilations=dilations, drop_path_rate=0.2)
backbone.update(init_cfg=dict(checkpoint=weights))
model = dict(backbone=backbone, neck=dict(in_channels=[96, 192, 384, 768]))
del weights, backbone, dilations
