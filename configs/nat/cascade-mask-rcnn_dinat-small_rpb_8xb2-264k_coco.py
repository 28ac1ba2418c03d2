# Cascade Mask R-CNN, DiNAT-Small, bias. As published: 52.9 box AP, 45.8 mask AP.
_base_ = './cascade-mask-rcnn_dinat-mini_rpb_8xb2-264k_coco.py'
weights = 'https://shi-labs.com/projects/dinat/checkpoints/imagenet1k/dinat_small_in1k_224.pth'
backbone = dict(arch='dinat_small', drop_path_rate=0.5, init_cfg=dict(checkpoint=weights))
model = dict(backbone=backbone, neck=dict(in_channels=[96, 192, 384, 768]))
del weights, backbone
