# UperNet, DiNAT-s-Small, bias. As published: 48.6 mIoU at one scale, 49.9 at several.
_base_ = './upernet_dinat-s-tiny_rpb_8xb2-160k_ade20k-512x512.py'
weights = 'https://shi-labs.com/projects/dinat/checkpoints/imagenet1k/dinat_s_small_in1k_224.pth'
backbone = dict(arch='dinat_s_small', drop_path_rate=0.3, init_cfg=dict(checkpoint=weights))
model = dict(backbone=backbone)
del weights, backbone
