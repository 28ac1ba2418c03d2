# UperNet, DiNAT-Base, bias. As published: 49.6 mIoU at one scale, 50.4 at several.
_base_ = './upernet_dinat-mini_rpb_8xb2-160k_ade20k-512x512.py'
weights = 'https://shi-labs.com/projects/dinat/checkpoints/imagenet1k/dinat_base_in1k_224.pth'
backbone = dict(arch='dinat_base', drop_path_rate=0.5, init_cfg=dict(checkpoint=weights))
head, auxiliary = dict(in_channels=[128, 256, 512, 1024]), dict(in_channels=512)
model = dict(backbone=backbone, decode_head=head, auxiliary_head=auxiliary)
del weights, backbone, head, auxiliary
