# UperNet, DiNAT-Mini, bias. As published: 45.8 mIoU at one scale, 47.2 at several.
_base_ = './upernet_nat-mini_rpb_8xb2-160k_ade20k-512x512.py'
weights = 'https://shi-labs.com/projects/dinat/checkpoints/imagenet1k/dinat_mini_in1k_224.pth'
dilations = ((1, 16), (1, 4, 1, 8), (1, 2, 1, 3, 1, 4), (1, 2))
backbone = dict(arch='dinat_mini', dilations=dilations, drop_path_rate=0.2)
backbone.update(init_cfg=dict(checkpoint=weights))
model = dict(backbone=backbone)
del weights, backbone, dilations
