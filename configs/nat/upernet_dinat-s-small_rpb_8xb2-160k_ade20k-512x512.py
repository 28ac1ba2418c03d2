# UperNet, DiNAT-s-Small, bias. As published: 48.6 mIoU at one scale, 49.9 at several.
_base_ = './upernet_nat-small_rpb_8xb2-160k_ade20k-512x512.py'
weights = 'https://shi-labs.com/projects/dinat/checkpoints/imagenet1k/dinat_s_small_in1k_224.pth'
backbone = dict(arch='dinat_s_small', drop_path_rate=0.3, init_cfg=dict(checkpoint=weights))
backbone.update(dilations=((1, 16), (1, 8), (1, 2, 1, 3, 1, 4), (1, 2)))
model = dict(backbone=backbone)
del weights, backbone
