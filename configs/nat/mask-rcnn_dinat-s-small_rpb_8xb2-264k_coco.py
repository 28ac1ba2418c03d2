# Mask R-CNN, DiNAT-s-Small, bias. As published: 48.6 box AP, 43.5 mask AP.
_base_ = './mask-rcnn_nat-small_rpb_8xb2-264k_coco.py'
weights = 'https://shi-labs.com/projects/dinat/checkpoints/imagenet1k/dinat_s_small_in1k_224.pth'
backbone = dict(arch='dinat_s_small', drop_path_rate=0.35, init_cfg=dict(checkpoint=weights))
backbone.update(dilations=((1, 28), (1, 14), (1, 3, 1, 5, 1, 7), (1, 3)))
model = dict(backbone=backbone)
del weights, backbone
