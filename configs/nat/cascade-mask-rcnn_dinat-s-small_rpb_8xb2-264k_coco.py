# Cascade Mask R-CNN, DiNAT-s-Small, bias. As published: 52.3 box AP, 45.2 mask AP.
_base_ = './cascade-mask-rcnn_dinat-s-tiny_rpb_8xb2-264k_coco.py'
weights = 'https://shi-labs.com/projects/dinat/checkpoints/imagenet1k/dinat_s_small_in1k_224.pth'
backbone = dict(arch='dinat_s_small', drop_path_rate=0.5, init_cfg=dict(checkpoint=weights))
model = dict(backbone=backbone)
del weights, backbone
