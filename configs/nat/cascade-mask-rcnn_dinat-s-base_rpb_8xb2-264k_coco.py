# Cascade Mask R-CNN, DiNAT-s-Base, bias. As published: 52.6 box AP, 45.3 mask AP.
_base_ = './cascade-mask-rcnn_nat-small_rpb_8xb2-264k_coco.py'
weights = 'https://shi-labs.com/projects/dinat/checkpoints/imagenet1k/dinat_s_base_in1k_224.pth'
backbone = dict(arch='dinat_s_base', drop_path_rate=0.6, init_cfg=dict(checkpoint=weights))
backbone.update(dilations=((1, 28), (1, 14), (1, 3, 1, 5, 1, 7), (1, 3)))
model = dict(backbone=backbone, neck=dict(in_channels=[128, 256, 512, 1024]))
optim_wrapper = dict(optimizer=dict(lr=7.5e-5))
del weights, backbone
