# Mask R-CNN, DiNAT-Tiny, bias. As published: 48.6 box AP, 43.5 mask AP.
_base_ = './mask-rcnn_dinat-mini_rpb_8xb2-264k_coco.py'
weights = 'https://shi-labs.com/projects/dinat/checkpoints/imagenet1k/dinat_tiny_in1k_224.pth'
backbone = dict(arch='dinat_tiny', drop_path_rate=0.2, init_cfg=dict(checkpoint=weights))
model = dict(backbone=backbone)
del weights, backbone
