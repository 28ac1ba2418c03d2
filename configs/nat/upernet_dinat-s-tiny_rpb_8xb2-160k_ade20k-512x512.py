# UperNet, DiNAT-s-Tiny, bias. As published: 46.0 mIoU at one scale, 47.4 at several.
_base_ = './upernet_nat-small_rpb_8xb2-160k_ade20k-512x512.py'
weights = 'https://shi-labs.com/projects/dinat/checkpoints/imagenet1k/dinat_s_tiny_in1k_224.pth'
dilations = ((1, 16), (1, 8), (1, 2, 1, 3, 1, 4), (1, 2))
backbone = dict(arch='dinat_s_tiny', dilations=dilations, drop_path_rate=0.3)
backbone.update(init_cfg=dict(checkpoint=weights))
model = dict(backbone=backbone)
del weights, backbone, dilations
