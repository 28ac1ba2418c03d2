# UperNet, DiNAT-Tiny, bias. As published: 47.8 mIoU at one scale, 48.8 at several.
_base_ = './upernet_dinat-mini_rpb_8xb2-160k_ade20k-512x512.py'
weights = 'https://shi-labs.com/projects/dinat/checkpoints/imagenet1k/dinat_tiny_in1k_224.pth'
backbone = dict(arch='dinat_tiny', drop_path_rate=0.3, init_cfg=dict(checkpoint=weights))
model = dict(backbone=backbone)
del weights, backbone
