# UperNet, DiNAT-Small, bias. As published: 48.9 mIoU at one scale, 49.9 at several.
_base_ = './upernet_dinat-mini_rpb_8xb2-160k_ade20k-512x512.py'
weights = 'https://shi-labs.com/projects/dinat/checkpoints/imagenet1k/dinat_small_in1k_224.pth'
backbone = dict(arch='dinat_small', drop_path_rate=0.5, init_cfg=dict(checkpoint=weights))
head, auxiliary = dict(in_channels=[96, 192, 384, 768]), dict(in_channels=384)
model = dict(backbone=backbone, decode_head=head, auxiliary_head=auxiliary)
del weights, backbone, head, auxiliary
